// Package secrets owns users' secrets: named values that their workspaces get as environment variables and files.
// Values are encrypted in the database and are never returned to a client: only the agents of a user's workspaces get
// them (For). Only the user may see that a secret exists, with any role. It knows nothing of workspaces, except that a
// change notifies their agents (NotifyUserSecrets).
package secrets

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Accounts finds users.
type Accounts interface {
	// Target returns the user in the path if the actor may perform the action on the resource of that user.
	Target(r *http.Request, action rbac.Action, resource rbac.Resource) (dbsqlc.User, error)
}

// Options configure the service. All fields are required.
type Options struct {
	DB       *database.DB
	Logger   *slog.Logger
	Keys     *keyring.Ring // encrypts values
	Accounts Accounts
}

// Service serves secrets. Safe for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger
}

// New returns the service.
func New(opts Options) *Service { return &Service{opts: opts, log: opts.Logger} }

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const secrets = "/api/v2/users/{user}/secrets"
	mux.Handle("GET "+secrets, rbac.Needs(rbac.Read, rbac.UserSecret), s.list)
	mux.Handle("POST "+secrets, rbac.Needs(rbac.Create, rbac.UserSecret), s.create,
		audit.On(audit.Create, audit.UserSecret))
	mux.Handle("POST "+secrets+"/batch", rbac.Needs(rbac.Create, rbac.UserSecret), s.createAll,
		audit.On(audit.Create, audit.UserSecret))
	mux.Handle("GET "+secrets+"/{name}", rbac.Needs(rbac.Read, rbac.UserSecret), s.get)
	mux.Handle("PATCH "+secrets+"/{name}", rbac.Needs(rbac.Update, rbac.UserSecret), s.update,
		audit.On(audit.Write, audit.UserSecret))
	mux.Handle("DELETE "+secrets+"/{name}", rbac.Needs(rbac.Delete, rbac.UserSecret), s.remove,
		audit.On(audit.Delete, audit.UserSecret))
}

// Secret is a secret as an agent gets it.
type Secret struct {
	Name, EnvName, FilePath string
	Value                   secret.Token
}

// For returns the enabled secrets of a user that have a destination, by name. A value that cannot be read is left out
// and logged, so that one lost key does not keep workspaces from starting.
func (s *Service) For(ctx context.Context, user uuid.UUID) ([]Secret, error) {
	rows, err := s.opts.DB.ListUserSecrets(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("list secrets: %w", err)
	}
	var out []Secret
	for _, row := range rows {
		if !row.Enabled || row.EnvName == "" && row.FilePath == "" {
			continue
		}
		value, err := s.opts.Keys.OpenSecret(place(row), row.Sealed)
		if err != nil {
			s.log.WarnContext(ctx, "cannot read user's secret", "user", user, "secret", row.ID, "err", err)
			continue
		}
		out = append(out, Secret{
			Name: row.Name, EnvName: row.EnvName, FilePath: row.FilePath, Value: secret.Token(value),
		})
	}
	return out, nil
}

// place returns where a secret's value is kept: it cannot be opened in another row, nor as another user's.
func place(row dbsqlc.UserSecret) keyring.Place { return keyring.SecretPlace(row.UserID, row.ID) }
