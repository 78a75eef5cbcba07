// Package consents owns users' consents: which templates' workspaces get a user's credentials.
//
// # What depends on a consent
//
// A template and its administrators can read everything that its builds and its agents get. A workspace therefore gets
// the credentials of its owner only if the owner has started a workspace of that template with their own hands.
// Credentials are
//
//   - in a build: the owner's session token, access token of the OpenID Connect sign-in, private SSH key, and external logins;
//   - at an agent: the owner's secrets, private SSH key, and external logins.
//
// Without the consent, a build runs as if the owner had none of them, says so in its log and is marked
// (credentials_withheld), and the agent's RPCs refuse. Name, email address, groups, roles and public SSH key are not
// credentials: every template may read them. Imports and dry runs never get credentials, not even the requester's own.
//
// # When a consent is given
//
// A consent belongs to a user and a template, and covers all versions of the template. The user gives it by a request
// that creates, claims, starts, restarts or updates one of their own workspaces, if the request carries a session or a
// token of their own with the scope workspace:start. These give none:
//
//   - a request by another user, whatever their roles: an administrator, or a user with whom the workspace is shared;
//   - a token that a workspace was given, because its template can read it and would consent for its owner;
//   - what the server does for the user: autostart, and the second half of a restart.
//
// Once given, a consent holds for all builds of all of the user's workspaces of the template, whatever starts them,
// until the user revokes it or the template or the account is deleted. A service account gives its consents with its
// own tokens, like every other account.
//
// # Revocation
//
// Revoking ends the sessions that the template's workspaces were given and makes running agents drop the user's
// secrets. RPCs of agents read the consent in each call. What a template has already read and stored elsewhere,
// Terraform's state included, cannot be taken back.
//
// The package must not know how builds and agents use a consent.
package consents

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// Accounts finds users.
type Accounts interface {
	// Target returns the user in the path if the actor may perform the action on the resource of that user.
	Target(r *http.Request, action rbac.Action, resource rbac.Resource) (dbsqlc.User, error)
}

// Options configure the service. All fields are required.
type Options struct {
	DB       *database.DB
	Accounts Accounts
}

// Service serves consents. Safe for concurrent use.
type Service struct{ opts Options }

// New returns the service.
func New(opts Options) *Service { return &Service{opts} }

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const consents = "/api/v2/users/{user}/template-consents"
	mux.Handle("GET "+consents, rbac.Needs(rbac.Read, rbac.TemplateConsent), s.list)
	mux.Handle("DELETE "+consents+"/{template}", rbac.Needs(rbac.Delete, rbac.TemplateConsent), s.revoke,
		audit.On(audit.Delete, audit.TemplateConsent))
}

// ByHand reports whether a request of the actor for a workspace of owner gives owner's consent.
func ByHand(actor rbac.Actor, owner uuid.UUID) bool {
	return actor.UserID == owner && !actor.FromWorkspace && actor.InScope("workspace:start") == nil
}

// Hold reports whether a user consents to a template. A consent that exists cannot be revoked until the transaction
// ends: the revocation also ends the session that the transaction may create.
func Hold(ctx context.Context, q *dbsqlc.Queries, user, template uuid.UUID) (bool, error) {
	held, err := q.HoldTemplateConsent(ctx, dbsqlc.HoldTemplateConsentParams{UserID: user, TemplateID: template})
	if err != nil {
		return false, fmt.Errorf("read consent: %w", err)
	}
	return held, nil
}

// Give records that a user consents to a template, unless they already do. Agents that run get what they were refused.
func Give(ctx context.Context, q *dbsqlc.Queries, user, template uuid.UUID) error {
	n, err := q.InsertTemplateConsent(ctx, dbsqlc.InsertTemplateConsentParams{UserID: user, TemplateID: template})
	if err != nil {
		return fmt.Errorf("store consent: %w", err)
	}
	if n == 0 {
		return nil
	}
	if err := q.NotifyConsent(ctx, dbsqlc.NotifyConsentParams{OwnerID: user, TemplateID: template}); err != nil {
		return fmt.Errorf("notify agents: %w", err)
	}
	return record(ctx, q, audit.Create, user, template)
}

// withdraw ends a user's consent to a template, and what the template's workspaces hold of the user. It reports whether
// there was a consent.
func withdraw(ctx context.Context, q *dbsqlc.Queries, user, template uuid.UUID) (bool, error) {
	n, err := q.DeleteTemplateConsent(ctx, dbsqlc.DeleteTemplateConsentParams{UserID: user, TemplateID: template})
	if err != nil || n == 0 {
		return false, err
	}
	// A build that was offered meanwhile has held the consent until it had stored its session.
	if err := q.DeleteTemplateWorkspaceKeys(ctx, dbsqlc.DeleteTemplateWorkspaceKeysParams{
		UserID: user, TemplateID: template,
	}); err != nil {
		return true, fmt.Errorf("end sessions of workspaces: %w", err)
	}
	marked, err := q.WithholdFromWorkspaces(ctx, dbsqlc.WithholdFromWorkspacesParams{
		OwnerID: user, TemplateID: template,
	})
	if err != nil {
		return true, fmt.Errorf("mark builds: %w", err)
	}
	for _, id := range marked {
		if err := q.NotifyWorkspace(ctx, id); err != nil {
			return true, fmt.Errorf("notify watchers: %w", err)
		}
	}
	if err := q.NotifyConsent(ctx, dbsqlc.NotifyConsentParams{OwnerID: user, TemplateID: template}); err != nil {
		return true, fmt.Errorf("notify agents: %w", err)
	}
	return true, record(ctx, q, audit.Delete, user, template)
}

// record writes the audit log's row, whose object is the template.
func record(ctx context.Context, q *dbsqlc.Queries, action audit.Action, user, template uuid.UUID) error {
	t, err := q.GetTemplate(ctx, template)
	if err != nil {
		return fmt.Errorf("read template: %w", err)
	}
	name, err := q.GetUsername(ctx, user)
	if err != nil {
		return fmt.Errorf("read user's name: %w", err)
	}
	return audit.Record(ctx, q, audit.Entry{
		Action: action, Kind: audit.TemplateConsent, ID: t.ID, Name: t.Name, Organization: t.OrganizationID,
		Fields: map[string]any{"user_id": user, "username": name},
	})
}
