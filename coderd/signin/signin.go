// Package signin signs users in at identity providers: with OpenID Connect, or at GitHub. It owns the providers'
// configuration, the flows, which identity an account belongs to, and the other ways into an account: conversion,
// one-time passcodes. It knows accounts and sessions as coderd/users does, keeps tokens in coderd/extauth, and must not
// know workspaces.
//
//	browser ── GET /api/v2/users/oidc/callback ──▶ provider's sign-in page    state, nonce and PKCE challenge in the URL
//	        ◀─ the same with ?code&state ── provider;  server ── code, verifier ──▶ provider: ID token, access and refresh token
//
// Package redirect binds the two halves to one browser. The ID token must be signed by the issuer, for this client,
// with the nonce of this browser, and not be expired.
//
// An account belongs to an identity: issuer and subject, which the provider never gives to another person. An email
// address decides only at the first sign-in, only if the provider has verified it, and only for an account that was
// created to sign in there: an account with a password is never taken over, its owner converts it (convert.go).
//
// While a user has sessions, the server renews the tokens of the sign-in every RefreshEvery. When the provider refuses,
// the sessions end and their holders are told why (refresh.go).
package signin

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	// RefreshEvery is how often the provider is asked whether a user with sessions is still welcome.
	RefreshEvery = 10 * time.Minute
	// DormantAfter is how long an account may be unused before it is dormant.
	DormantAfter = 90 * 24 * time.Hour
)

// Accounts are the accounts and sessions of the deployment: coderd/users.
type Accounts interface {
	// Target returns the user in the path if the actor may perform the action on the resource of that user.
	Target(r *http.Request, action rbac.Action, resource rbac.Resource) (dbsqlc.User, error)
	CreateFrom(ctx context.Context, q *dbsqlc.Queries, a users.Account) (dbsqlc.User, error)
	UpdateFrom(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, email, name string) (dbsqlc.User, error)
	StartSession(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User) (secret.Token, error)
	KeepSession(w http.ResponseWriter, token secret.Token)
	EndSessions(ctx context.Context, user uuid.UUID, why string) error
	SignOut(ctx context.Context, user dbsqlc.User, why string) error
	ProvePassword(w http.ResponseWriter, r *http.Request, user dbsqlc.User, password string) error
	CheckPassword(user dbsqlc.User, password string) error
	SetPassword(ctx context.Context, user dbsqlc.User, password string) error
}

// Mailer sends a message to a user's address. It may block, and returns an error if the message was not accepted.
type Mailer interface {
	Send(ctx context.Context, user uuid.UUID, subject, text string) error
}

// Options configures a Service. OIDC, GitHub and Mailer may be nil.
type Options struct {
	DB       *database.DB
	Logger   *slog.Logger
	Accounts Accounts
	// Tokens keeps and renews the tokens of sign-ins. It must know the providers (extauth.Options.SignIn).
	Tokens *extauth.Service
	// Claims syncs memberships with what the OpenID provider says.
	IDPSync *idpsync.Service
	// Signer signs the state of a sign-in.
	Signer *signed.Signer
	// AccessURL is the URL at which browsers reach the server.
	AccessURL *url.URL
	// OIDC and GitHub are the providers; nil means that users cannot sign in there.
	OIDC   *OIDC
	GitHub *GitHub
	// OnlyOwnersUsePasswords refuses passwords of users who are not owners of the deployment.
	OnlyOwnersUsePasswords bool
	// TermsOfServiceURL leads to terms that users accept on the sign-in page. Empty: none.
	TermsOfServiceURL string
	// Mailer sends one-time passcodes. If nil, users cannot reset their passwords.
	Mailer Mailer
}

// Service signs users in. Safe for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger

	cancel context.CancelFunc
	ctx    context.Context // ends with Stop; a service's own run context
	work   sync.WaitGroup

	mailing chan struct{} // a slot per passcode that is being mailed
	logouts spentTokens
}

// New returns the service. Start begins its background work.
func New(opts Options) *Service {
	s := &Service{opts: opts, log: opts.Logger, mailing: make(chan struct{}, maxMailing)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if opts.OIDC != nil {
		opts.Tokens.OnRenewed(extauth.SignInOIDC, s.resync)
	}
	return s
}

// Providers returns the providers of sign-ins, for extauth.Options. Both may be nil.
func Providers(o *OIDC, g *GitHub) []extauth.Provider {
	var out []extauth.Provider
	if o != nil {
		out = append(out, extauth.Provider{
			ID: extauth.SignInPrefix + string(sdk.LoginOIDC), DisplayName: "The identity provider", Renew: o.renew,
		})
	}
	if g != nil {
		out = append(out, extauth.Provider{
			ID: extauth.SignInPrefix + string(sdk.LoginGitHub), DisplayName: "GitHub", Renew: g.renew,
		})
	}
	return out
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const v2 = "/api/v2/users"
	mux.Handle("GET "+v2+"/authmethods", rbac.Public, s.authMethods)
	mux.Handle("GET "+v2+"/oidc/callback", rbac.Public, s.oidcCallback)
	mux.Handle("POST "+v2+"/oidc/backchannel-logout", rbac.Public, s.backchannelLogout,
		audit.Exempt("the sessions that it ends leave a row, which names their user"))
	mux.Handle("GET "+v2+"/oidc-claims", rbac.SignedIn, s.oidcClaims)
	mux.Handle("GET "+v2+"/oauth2/github/callback", rbac.Public, s.githubCallback)
	mux.Handle("GET "+v2+"/oauth2/github/device", rbac.Public, s.githubDevice)
	mux.Handle("GET "+v2+"/{user}/login-type", rbac.Needs(rbac.Read, rbac.User), s.loginType)
	mux.Handle("POST "+v2+"/{user}/convert-login", rbac.Needs(rbac.Update, rbac.User), s.convert,
		audit.Exempt("the sign-in that completes the conversion leaves a row"))
	mux.Handle("POST "+v2+"/otp/request", rbac.Public, s.requestPasscode,
		audit.Exempt("must not differ for addresses without an account; the change of the password leaves a row"))
	mux.Handle("POST "+v2+"/otp/change-password", rbac.Public, s.changePassword, audit.On(audit.Write, audit.User))
}

// Start begins to renew sign-ins and to mark dormant users.
func (s *Service) Start() {
	if s.opts.OIDC != nil || s.opts.GitHub != nil {
		s.work.Go(func() { every(s.ctx, checkEvery, s.checkSignIns) })
	}
	s.work.Go(func() { every(s.ctx, dormantEvery, s.markDormant) })
}

// Stop ends the background work and waits for it.
func (s *Service) Stop() {
	s.cancel()
	s.work.Wait()
}

// every calls f now and then until ctx ends.
func every(ctx context.Context, period time.Duration, f func(context.Context)) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		f(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
