package idpsync

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Options configure a Service.
type Options struct {
	DB     *database.DB
	Logger *slog.Logger
	// Initial are the settings of the server's options; the zero value syncs nothing.
	Initial Initial
}

// Service syncs memberships with claims and serves the settings of that. Safe for concurrent use.
type Service struct {
	db      *database.DB
	log     *slog.Logger
	initial Initial
}

// New returns the service.
func New(o Options) *Service { return &Service{db: o.DB, log: o.Logger, initial: o.Initial} }

// Routes registers the routes. Administrators of an organization change its settings; owners, those of all
// organizations. Roles in the deployment have no routes: they are the operator's.
func (s *Service) Routes(mux *httpapi.Mux) {
	const (
		site = "/api/v2/settings/idpsync/"
		org  = "/api/v2/organizations/{organization}/settings/idpsync/"
	)
	routes(s, mux, ofOrganizations, site+"organization", audit.OrganizationSync,
		func(to *sdk.OrganizationSyncSettings, req sdk.PatchOrganizationSyncConfigRequest) error {
			to.Field, to.AssignDefault = req.Field, req.AssignDefault
			return nil
		},
		func(to *sdk.OrganizationSyncSettings, req sdk.PatchSyncMappingRequest) error {
			return remap(&to.Mapping, req, uuid.Parse)
		})
	routes(s, mux, ofGroups, org+"groups", audit.GroupSync,
		func(to *sdk.GroupSyncSettings, req sdk.PatchGroupSyncConfigRequest) error {
			to.Field, to.RegexFilter, to.AutoCreate = req.Field, req.RegexFilter, req.AutoCreate
			return nil
		},
		func(to *sdk.GroupSyncSettings, req sdk.PatchSyncMappingRequest) error {
			return remap(&to.Mapping, req, uuid.Parse)
		})
	routes(s, mux, ofRoles, org+"roles", audit.RoleSync,
		func(to *sdk.RoleSyncSettings, req sdk.PatchRoleSyncConfigRequest) error {
			to.Field = req.Field
			return nil
		},
		func(to *sdk.RoleSyncSettings, req sdk.PatchSyncMappingRequest) error {
			return remap(&to.Mapping, req, asText)
		})
	mux.Handle("GET "+site+"available-fields", ofOrganizations.needs(), s.fields(ofOrganizations))
	mux.Handle("GET "+site+"field-values", ofOrganizations.needs(), s.values(ofOrganizations))
	mux.Handle("GET "+org+"available-fields", ofGroups.needs(), s.fields(ofGroups))
	mux.Handle("GET "+org+"field-values", ofGroups.needs(), s.values(ofGroups))
}

// needs returns the permission of a kind's routes.
func (k kind) needs() rbac.Permission {
	if k == ofOrganizations {
		return rbac.Needs(rbac.Update, rbac.Deployment)
	}
	return rbac.Needs(rbac.Update, rbac.Organization)
}

// routes registers the routes of one kind of settings.
func routes[T settings, C any](s *Service, mux *httpapi.Mux, k kind, path string, object audit.Kind, config func(*T, C) error, mapping func(*T, sdk.PatchSyncMappingRequest) error) {
	on := audit.On(audit.Write, object)
	mux.Handle("GET "+path, k.needs(), show[T](s, k))
	mux.Handle("PATCH "+path, k.needs(), patch(s, k, replace[T]), on)
	mux.Handle("PATCH "+path+"/config", k.needs(), patch(s, k, config), on)
	mux.Handle("PATCH "+path+"/mapping", k.needs(), patch(s, k, mapping), on)
}

const (
	// maxFields and maxListed bound the names and values of claims in an answer.
	maxFields = 1000
	maxListed = 5000
)

// personal are claims about a person or a token (OpenID Connect Core, 2 and 5.1), which no membership follows from.
var personal = []string{
	"sub", "name", "given_name", "family_name", "middle_name", "nickname", "preferred_username", "profile", "picture", "website", "email",
	"email_verified", "gender", "birthdate", "zoneinfo", "locale", "phone_number", "phone_number_verified", "address", "updated_at",
	"iss", "aud", "exp", "iat", "nbf", "jti", "auth_time", "nonce", "at_hash", "c_hash", "s_hash", "sid", "session_state",
}

// fields serves the names of the claims that users had.
func (s *Service) fields(k kind) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		at, err := s.place(r, k)
		if err != nil {
			return err
		}
		names, err := s.db.ListClaimNames(r.Context(), dbsqlc.ListClaimNamesParams{
			Without: personal, OrganizationID: at.org, MaxRows: maxFields,
		})
		if err != nil {
			return fmt.Errorf("list claims: %w", err)
		}
		return httpapi.Write(w, http.StatusOK, sdk.List[string](names))
	}
}

// values serves the texts that a claim had.
func (s *Service) values(k kind) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		at, err := s.place(r, k)
		if err != nil {
			return err
		}
		claim := r.URL.Query().Get("claimField")
		if claim == "" || len(claim) > maxField {
			return fault.New(fault.Invalid, "The claim is missing.").
				WithField("claimField", "must be the name of a claim")
		}
		for _, name := range personal {
			if claim == name {
				return fault.New(fault.Invalid, "The claim %s is personal: no membership follows from it.", name).
					WithField("claimField", "must be another claim")
			}
		}
		found, err := s.db.ListClaimValues(r.Context(), dbsqlc.ListClaimValuesParams{
			Claim: database.Text(claim), OrganizationID: at.org, MaxRows: maxListed,
		})
		if err != nil {
			return fmt.Errorf("list values of a claim: %w", err)
		}
		return httpapi.Write(w, http.StatusOK, sdk.List[string](found))
	}
}
