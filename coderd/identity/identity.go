// Package identity makes the deployment an issuer of OpenID Connect: workspaces and builds prove to clouds and vaults
// what they are, with ID tokens that those verify with the deployment's public keys (docs/identity.md,
// docs/decisions/0058-workload-identity.md).
//
// A token says which agent or build it is for, and for whom it is (its audience). Templates allow audiences; none is
// allowed by default. The package checks that. It knows neither how tokens reach workspaces nor how builds run, nor
// whether an agent may have the credentials of its workspace's owner: its callers do.
package identity

import (
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// Options configure the service. Now may be nil.
type Options struct {
	DB     *database.DB
	Logger *slog.Logger
	Keys   *keyring.Ring
	// AccessURL is the issuer, without a slash at its end.
	AccessURL *url.URL
	// Now replaces the clock. Nil: time.Now.
	Now func() time.Time
}

// Service issues ID tokens, and publishes the keys that verify them. Safe for concurrent use.
type Service struct {
	opts   Options
	issuer string
	now    func() time.Time
	// parsed are the keys that were read last, so that they are decrypted and parsed only when they have changed.
	parsed atomic.Pointer[parsedKeys]
}

// New returns the service. It makes no keys: the first question for them does.
func New(opts Options) *Service {
	s := &Service{opts: opts, issuer: strings.TrimSuffix(opts.AccessURL.String(), "/"), now: opts.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET "+discoveryPath, rbac.Public, s.discovery) // verifiers have no session
	mux.Handle("GET "+keysPath, rbac.Public, s.publicKeys)
	mux.Handle("GET /api/v2/deployment/identity", rbac.Needs(rbac.Read, rbac.Deployment), s.getIdentityKeys)
	mux.Handle("POST /api/v2/deployment/identity/rotate", rbac.Needs(rbac.Update, rbac.Deployment), s.rotateIdentityKeys,
		audit.On(audit.Write, audit.IdentityKeys))
}
