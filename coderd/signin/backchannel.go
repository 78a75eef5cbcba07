package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// logoutEvent is the member of events that makes a token a logout token (OpenID Connect Back-Channel Logout 1.0,
	// 2.4).
	logoutEvent = "http://schemas.openid.net/event/backchannel-logout"
	// maxLogoutBody bounds a request, in bytes.
	maxLogoutBody = 64 << 10
	// logoutLasts is how long a logout token is accepted after it was issued, whatever its own end. Providers send it
	// at once.
	logoutLasts = 5 * time.Minute
	// maxSpent bounds the ids of tokens that a server remembers. Only the provider's own tokens are among them.
	maxSpent = 4096
)

// whySignedOut is what holders of sessions read that the provider ends.
const whySignedOut = "you signed out at the identity provider, or it has ended your sign-in."

// logout is what a provider says in a logout token: that its sign-ins of a user, up to a moment, are over.
type logout struct {
	ID, Issuer, Subject string
	At                  time.Time
}

// backchannelLogout ends the sessions of a user whom the provider has signed out. Anyone may call it: the token's
// signature proves who says so.
//
// A token ends sessions only if the user has not signed in since it was issued. One that is sent again ends nothing:
// neither at this server, which remembers it, nor at another one after the next sign-in.
func (s *Service) backchannelLogout(w http.ResponseWriter, r *http.Request) error {
	httpapi.NoStore(w.Header())
	if s.opts.OIDC == nil {
		return notConfigured(sdk.LoginOIDC)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxLogoutBody)
	said, err := s.opts.OIDC.logout(r.Context(), r.PostFormValue("logout_token"))
	if err != nil {
		return err
	}
	if !s.logouts.spend(said.ID, time.Now()) {
		return fault.New(fault.Invalid, "The logout token was used before.")
	}
	if err := s.signOut(r.Context(), said); err != nil {
		s.logouts.forget(said.ID) // the provider may send it again
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Service) signOut(ctx context.Context, said logout) error {
	row, err := s.opts.DB.GetUserByLink(ctx, dbsqlc.GetUserByLinkParams{
		LoginType: string(sdk.LoginOIDC), Issuer: said.Issuer, Subject: said.Subject,
	})
	if database.IsNotFound(err) {
		return nil // a user who has never signed in here
	}
	if err != nil {
		return fmt.Errorf("look up identity: %w", err)
	}
	link, err := s.opts.DB.GetUserLink(ctx, dbsqlc.GetUserLinkParams{
		UserID: row.User.ID, LoginType: string(sdk.LoginOIDC),
	})
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	if link.UpdatedAt.After(said.At.Add(clockSkew)) {
		s.log.InfoContext(ctx, "logout token ignored: the user has signed in since", "user", row.User.Username)
		return nil
	}
	return s.opts.Accounts.SignOut(ctx, row.User, whySignedOut)
}

// logout verifies a logout token (OpenID Connect Back-Channel Logout 1.0, 2.6).
func (o *OIDC) logout(ctx context.Context, raw string) (logout, error) {
	if raw == "" {
		return logout{}, fault.New(fault.Invalid, "The logout token is missing.").
			WithDetail("The identity provider must send it as logout_token in a form.")
	}
	p, err := o.discover(ctx)
	if err != nil {
		return logout{}, err
	}
	refused := func(what string, cause error) (logout, error) {
		f := fault.New(fault.Invalid, "The logout token %s.", what)
		f.Cause = cause
		return logout{}, f
	}
	now := time.Now()
	// The library takes its end for required, as an ID token's is.
	id, err := p.Verifier(&oidc.Config{ClientID: o.cfg.ClientID, SkipExpiryCheck: true}).Verify(ctx, raw)
	if err != nil {
		return refused("cannot be trusted: it is not the identity provider's, or not for this server", err)
	}
	var claims struct {
		Events   map[string]json.RawMessage `json:"events"`
		ID       string                     `json:"jti"`
		Nonce    json.RawMessage            `json:"nonce"`
		Expires  *float64                   `json:"exp"`
		IssuedAt *float64                   `json:"iat"`
		Party    *string                    `json:"azp"`
	}
	if err := id.Claims(&claims); err != nil {
		return refused("has claims that cannot be read", err)
	}
	var event map[string]any
	switch {
	case claims.Events[logoutEvent] == nil || json.Unmarshal(claims.Events[logoutEvent], &event) != nil || event == nil:
		return refused("does not say that a user was signed out", errors.New("no event"))
	case claims.Nonce != nil:
		return refused("is an ID token", errors.New("it has a nonce"))
	case claims.ID == "" || len(claims.ID) > maxSubject:
		return refused("has no id", errors.New("no jti"))
	case claims.IssuedAt == nil || id.IssuedAt.After(now.Add(clockSkew)):
		return refused("is not valid yet", errors.New("wrong iat"))
	case id.IssuedAt.Before(now.Add(-logoutLasts - clockSkew)), claims.Expires != nil && id.Expiry.Before(now.Add(-clockSkew)):
		return refused("has expired", errors.New("it is too old"))
	case claims.Party != nil && len(id.Audience) > 1 && *claims.Party != o.cfg.ClientID:
		return refused("is for another application", errors.New("wrong authorized party"))
	case id.Subject == "":
		return refused("names a session, and no user: the provider must send the claim sub", errors.New("no sub"))
	}
	return logout{ID: claims.ID, Issuer: o.cfg.IssuerURL, Subject: id.Subject, At: id.IssuedAt}, nil
}

// spentTokens remembers the ids of logout tokens for as long as the tokens are accepted. The zero value is ready.
type spentTokens struct {
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

// spend reports whether a token is used for the first time.
func (t *spentTokens) spend(id string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = map[string]time.Time{}
	}
	if len(t.until) >= maxSpent {
		for old, until := range t.until {
			if now.After(until) || len(t.until) >= maxSpent {
				delete(t.until, old)
			}
		}
	}
	if until, used := t.until[id]; used && now.Before(until) {
		return false
	}
	t.until[id] = now.Add(logoutLasts + 2*clockSkew)
	return true
}

func (t *spentTokens) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.until, id)
}
