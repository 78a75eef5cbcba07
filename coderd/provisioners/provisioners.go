// Package provisioners owns the named keys with which provisioner daemons join: it creates, lists and deletes them, and
// recognizes a daemon by its key. A key's tags are fixed, and its daemons have exactly those. It knows neither the mesh
// nor the queue; OnDeleted registers callbacks that disconnect a deleted key's daemons.
package provisioners

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// channelDeleted announces deleted keys to every replica. Payloads are key ids.
const channelDeleted = "provisioner_keys"

const (
	secretLength = 43 // 256 bits
	queryTimeout = 10 * time.Second
)

// secretPrefix marks a key, so that a leaked one can be recognized.
const secretPrefix = "cmpk_"

var (
	nameForm   = lazyregexp.New(`^[a-zA-Z0-9]+([._-][a-zA-Z0-9]+)*$`)
	secretForm = lazyregexp.New(`^` + secretPrefix + `[A-Za-z0-9]{43}$`)
)

// reserved lists the names that lists show for the other ways to join.
var reserved = map[string]bool{sdk.KeyBuiltIn: true, sdk.KeyUser: true, sdk.KeyPSK: true}

// Options configure a Service. All fields are required.
type Options struct {
	DB     *database.DB
	PubSub pubsub.PubSub
	Logger *slog.Logger
}

// Service is safe for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger
}

// New returns the service.
func New(opts Options) *Service { return &Service{opts: opts, log: opts.Logger} }

// Key is a key that a daemon has presented.
type Key struct {
	ID           uuid.UUID
	Name         string
	Tags         map[string]string
	Organization uuid.UUID
}

// Authenticate returns the key that a secret belongs to. Its faults are Unauthenticated, and Unavailable when the
// database is unavailable.
func (s *Service) Authenticate(ctx context.Context, token secret.Token) (Key, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	unknown := fault.New(fault.Unauthenticated, "The provisioner key is not valid, or has been deleted").
		WithDetail("A template admin can create a new one: coder provisioner keys create NAME")
	if !secretForm().MatchString(token.Reveal()) {
		return Key{}, unknown
	}
	row, err := s.opts.DB.GetProvisionerKeyBySecret(ctx, token.Hash())
	if database.IsNotFound(err) {
		return Key{}, unknown
	}
	if err != nil {
		return Key{}, fault.New(fault.Unavailable, "The provisioner key cannot be checked now: %w", err)
	}
	tags, err := tagsOf(row)
	return Key{ID: row.ID, Name: row.Name, Tags: tags, Organization: row.OrganizationID}, err
}

// Organization returns the id of the organization that a daemon names, by name or id. The fault is NotFound if there is
// none.
func (s *Service) Organization(ctx context.Context, reference string) (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	org, err := s.opts.DB.GetOrganizationByReference(ctx, reference)
	if err != nil {
		return uuid.Nil, lookup.Fault(err, rbac.Organization, "look up organization")
	}
	return org.ID, nil
}

// Existing returns the given keys that have not been deleted.
func (s *Service) Existing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	existing, err := s.opts.DB.ListExistingProvisionerKeys(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list provisioner keys: %w", err)
	}
	return existing, nil
}

// OnDeleted registers fn to be called when a key may have been deleted, by this server or by another replica: with its
// id, or with uuid.Nil for "look again". Calls come one at a time. cancel ends them without waiting.
func (s *Service) OnDeleted(fn func(id uuid.UUID)) (cancel func()) {
	return s.opts.PubSub.Subscribe(channelDeleted, func(payload string) {
		id, err := uuid.Parse(payload)
		if err != nil {
			id = uuid.Nil
		}
		fn(id)
	})
}

// Routes registers the keys' routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/organizations/{organization}/provisionerkeys", rbac.Needs(rbac.Read, rbac.ProvisionerKey),
		s.list)
	mux.Handle("POST /api/v2/organizations/{organization}/provisionerkeys", rbac.Needs(rbac.Create,
		rbac.ProvisionerKey), s.create, audit.On(audit.Create, audit.ProvisionerKey), httpapi.CreatesSecret("The key"))
	mux.Handle("DELETE /api/v2/organizations/{organization}/provisionerkeys/{name}",
		rbac.Needs(rbac.Delete, rbac.ProvisionerKey), s.delete, audit.On(audit.Delete, audit.ProvisionerKey))
}

// may returns the organization in the path if the actor may perform the action on its keys.
func (s *Service) may(r *http.Request, action rbac.Action) (dbsqlc.Organization, error) {
	actor := httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.opts.DB.Queries, actor)
	if err != nil {
		return org, err
	}
	return org, actor.May(action, rbac.Of(rbac.ProvisionerKey, uuid.Nil).In(org.ID))
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	org, err := s.may(r, rbac.Read)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListProvisionerKeys(r.Context(), org.ID)
	if err != nil {
		return fmt.Errorf("list provisioner keys: %w", err)
	}
	out := sdk.List[sdk.ProvisionerKey]{}
	for _, row := range rows {
		key, err := toJSON(row)
		if err != nil {
			return err
		}
		out = append(out, key)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	org, err := s.may(r, rbac.Create)
	if err != nil {
		return err
	}
	var req sdk.CreateProvisionerKeyRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := check(req); err != nil {
		return err
	}
	tags, err := json.Marshal(sdk.Map[string](req.Tags))
	if err != nil {
		return fmt.Errorf("encode tags: %w", err)
	}
	token, actor := secret.Token(secretPrefix+secret.Text(secretLength)), httpapi.ActorFrom(r.Context())
	var row dbsqlc.ProvisionerKey
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		if _, err := q.HoldOrganization(r.Context(), org.ID); err != nil {
			return lookup.Fault(err, rbac.Organization, "hold organization")
		}
		var err error
		if row, err = q.InsertProvisionerKey(r.Context(), dbsqlc.InsertProvisionerKeyParams{
			ID: uuid.New(), OrganizationID: org.ID, Name: req.Name, Tags: tags, SecretHash: token.Hash(),
			CreatedBy: actor.UserID,
		}); err != nil {
			return err
		}
		return audit.Record(r.Context(), q, audit.Entry{
			ID: row.ID, Name: row.Name, Organization: org.ID,
			Diff: audit.Diff{}.Field("name", "", row.Name).Field("tags", nil, json.RawMessage(tags)).Secret("key"),
		})
	})
	if database.IsUniqueViolation(err, "provisioner_keys_name") {
		return fault.New(fault.Conflict, "A provisioner key named %q already exists.", req.Name).
			WithField("name", "is taken")
	}
	if err != nil {
		return fmt.Errorf("store provisioner key: %w", err)
	}
	s.log.Info("provisioner key created", "user", actor.Username, "key", row.Name)
	return httpapi.Write(w, http.StatusCreated, sdk.CreateProvisionerKeyResponse{Key: token.Reveal()})
}

func check(req sdk.CreateProvisionerKeyRequest) error {
	refused := fault.New(fault.Invalid, "The provisioner key cannot be created.")
	switch {
	case len(req.Name) > 64 || !nameForm().MatchString(req.Name):
		refused.WithField("name",
			"must be at most 64 letters and digits, with single dots, hyphens or underscores between them")
	case reserved[strings.ToLower(req.Name)]:
		refused.WithField("name", "is reserved for provisioners that join in another way")
	}
	if err := jobtags.Check(req.Tags); err != nil {
		refused.WithField("tags", err.Error())
	}
	if scope, ok := req.Tags[jobtags.Scope]; ok && scope != jobtags.Organization {
		refused.WithField("tags", "cannot be scope=user: such a provisioner joins with its user's session")
	}
	if req.Tags[jobtags.Owner] != "" {
		refused.WithField("tags", "cannot set owner: the server sets it")
	}
	if len(refused.Fields) > 0 {
		return refused
	}
	return nil
}

func (s *Service) delete(w http.ResponseWriter, r *http.Request) error {
	org, err := s.may(r, rbac.Delete)
	if err != nil {
		return err
	}
	ctx, name := r.Context(), r.PathValue("name")
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		id, err := q.DeleteProvisionerKey(ctx, dbsqlc.DeleteProvisionerKeyParams{OrganizationID: org.ID, Name: name})
		if database.IsNotFound(err) {
			return rbac.NotFound(rbac.ProvisionerKey)
		}
		if err != nil {
			return err
		}
		if err := audit.Record(ctx, q, audit.Entry{ID: id, Name: name, Organization: org.ID}); err != nil {
			return err
		}
		return q.Notify(ctx, dbsqlc.NotifyParams{Channel: channelDeleted, Payload: id.String()})
	})
	if err != nil {
		return fmt.Errorf("delete provisioner key: %w", err)
	}
	s.log.Info("provisioner key deleted", "user", httpapi.ActorFrom(ctx).Username, "key", name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func tagsOf(row dbsqlc.ProvisionerKey) (map[string]string, error) {
	tags := map[string]string{}
	if err := json.Unmarshal(row.Tags, &tags); err != nil {
		return nil, fmt.Errorf("decode tags: %w", err)
	}
	return tags, nil
}

func toJSON(row dbsqlc.ProvisionerKey) (sdk.ProvisionerKey, error) {
	tags, err := tagsOf(row)
	return sdk.ProvisionerKey{
		ID: row.ID, CreatedAt: row.CreatedAt, OrganizationID: row.OrganizationID, Name: row.Name, Tags: tags,
	}, err
}
