// Package sshkeys owns the public SSH keys of users, and decides whom a key signs in. A key belongs to one user of the
// deployment, who adds it; user admins may remove it, but no role adds a key for another user, because its holder could
// then sign in as that user. It knows neither workspaces nor the gateway that speaks SSH.
//
// A key signs in at the servers, and at the regions that its user has allowed it (regions.go). It ends when its user
// said, and at the latest when the operator's longest lifetime after its creation is over.
package sshkeys

import (
	"log/slog"
	"net/http"
	"time"

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

// MinLifetime is the shortest time that a key can be added for, and that an operator can set.
const MinLifetime = time.Minute

// Options configure the service. DB, Logger and Accounts are required.
type Options struct {
	DB       *database.DB
	Logger   *slog.Logger
	Accounts Accounts
	// MaxLifetime is how long a key signs its user in after it was added, whatever the user chose then. It also counts
	// for keys that were there before it was set. 0: no limit.
	MaxLifetime time.Duration
	// Regions are the names of the region proxies at which a new key may sign in, unless its user says otherwise.
	Regions []string
}

// Service serves public SSH keys. Safe for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger
}

// New returns the service.
func New(opts Options) *Service { return &Service{opts: opts, log: opts.Logger} }

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const keys = "/api/v2/users/{user}/ssh-keys"
	mux.Handle("GET "+keys, rbac.Needs(rbac.Read, rbac.UserSSHKey), s.list)
	mux.Handle("POST "+keys, rbac.Needs(rbac.Create, rbac.UserSSHKey), s.create,
		audit.On(audit.Create, audit.UserSSHKey))
	mux.Handle("PATCH "+keys+"/{key}", rbac.Needs(rbac.Update, rbac.UserSSHKey), s.update,
		audit.On(audit.Write, audit.UserSSHKey))
	mux.Handle("DELETE "+keys+"/{key}", rbac.Needs(rbac.Delete, rbac.UserSSHKey), s.remove,
		audit.On(audit.Delete, audit.UserSSHKey))
}
