// Package sshca owns the SSH certificates of the deployment: which host keys it certifies, which keys of users, and
// whom such a certificate signs in (docs/decisions/0052-ssh-certificates.md).
//
// A user's certificate stands for the session or token that asked for it, which its key id names: it grants what that
// grants at the moment, and ends with it. Nothing about it is stored.
//
// The package knows neither workspaces nor the gateway that speaks SSH.
package sshca

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// Accounts knows the sessions and tokens of users.
type Accounts interface {
	// Session returns a user with the current rights of a session or token, by its id, or fault.Unauthenticated.
	Session(ctx context.Context, id string, user uuid.UUID) (rbac.Actor, error)
}

// Options configure the service. Address, and Now, may be zero.
type Options struct {
	DB       *database.DB
	Logger   *slog.Logger
	Keys     *hostkeys.Keys
	Accounts Accounts
	// Address is HOST:PORT at which users reach the gateway; "" if there is none.
	Address string
	// Now replaces the clock. Nil: time.Now.
	Now func() time.Time
}

// Service certifies keys, and judges certificates. Safe for concurrent use.
type Service struct {
	opts       Options
	log        *slog.Logger
	now        func() time.Time
	host, port string // of the gateway

	mu      sync.Mutex // guards the fields below
	gateway ssh.Signer // the gateway's key with its certificate; nil before the first
	asked   time.Time  // when it was last made, or tried
}

// New returns the service.
func New(opts Options) *Service {
	s := &Service{opts: opts, log: opts.Logger, now: opts.Now}
	if s.now == nil {
		s.now = time.Now
	}
	s.host, s.port, _ = net.SplitHostPort(opts.Address) // the zero values mean that there is no gateway
	return s
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	rotate, rotated := rbac.Needs(rbac.Update, rbac.Deployment), audit.On(audit.Write, audit.SSHAuthority)
	mux.Handle("GET /api/v2/deployment/ssh-host-ca", rbac.AnyToken, s.hostAuthority)
	mux.Handle("POST /api/v2/deployment/ssh-host-ca/rotate", rotate, s.rotateHost, rotated)
	mux.Handle("POST /api/v2/deployment/ssh-user-ca/rotate", rotate, s.rotateUser, rotated)
	mux.Handle("POST /api/v2/ssh-certificates", rbac.Needs(rbac.Connect, rbac.Agent), s.create,
		audit.On(audit.Create, audit.SSHCertificate))
}
