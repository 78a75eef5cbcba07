package extauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/secret"
)

const (
	purpose = "external auth" // of the sealed state
	// flowTime is how long a sign-in at the provider may take.
	flowTime = 15 * time.Minute
	// verifierCookie keeps the PKCE verifier in the browser that began the sign-in, under the provider's own path.
	verifierCookie = "coder_external_auth_verifier"
	maxBack        = 1024 // bytes of the address to return to
)

// Reasons why a sign-in failed, as the dashboard's page of the provider knows them.
const (
	failedDenied   = "denied"   // by the user or the provider
	failedState    = "state"    // not begun here, or begun too long ago
	failedExchange = "exchange" // the provider did not accept the code
	failedRefused  = "refused"  // the provider's token is not valid
	failedAway     = "away"     // the provider cannot be reached
)

// state is what the provider returns together with the code. It is not secret.
type state struct {
	User     uuid.UUID `json:"u"`
	Session  string    `json:"s"`
	Provider string    `json:"p"`
	Verifier string    `json:"v"` // its hash
	Back     string    `json:"b,omitempty"`
}

// callback begins a sign-in, and also handles the return from the provider.
func (s *Service) callback(w http.ResponseWriter, r *http.Request) error {
	p := s.provider(r.PathValue("externalauth"))
	if p == nil {
		return noProvider(r.PathValue("externalauth"))
	}
	httpapi.NoStore(w.Header())
	if q := r.URL.Query(); q.Has("code") || q.Has("error") || q.Has("state") {
		return s.finish(w, r, p)
	}
	// A page of another site, or of an app on a neighbouring host, must not link an account by a redirect that the provider
	// answers immediately: a visitor from there first sees the page with the button.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		s.sendBack(w, r, p, "", "")
		return nil
	}
	return s.begin(w, r, p)
}

func (s *Service) begin(w http.ResponseWriter, r *http.Request, p *Provider) error {
	back := r.URL.Query().Get("redirect")
	if back != "" && !isLocal(back) {
		return fault.New(fault.Invalid, "A sign-in can redirect only to this server.").WithField("redirect", "must be a path of this server")
	}
	actor := httpapi.ActorFrom(r.Context())
	verifier := oauth2.GenerateVerifier()
	sealed, err := s.opts.Sealer.Seal(purpose, state{User: actor.UserID, Session: actor.KeyID, Provider: p.ID, Verifier: hashOf(verifier), Back: back}, flowTime)
	if err != nil {
		return err
	}
	http.SetCookie(w, s.cookie(p, verifier, int(flowTime/time.Second)))
	http.Redirect(w, r, s.config(p).AuthCodeURL(sealed.Reveal(), oauth2.S256ChallengeOption(verifier)), http.StatusSeeOther)
	return nil
}

func (s *Service) cookie(p *Provider, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: verifierCookie, Value: value, Path: s.callbackURL(p).Path, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: s.opts.AccessURL.Scheme == "https",
	}
}

// begunBy opens the state that the provider returned. The sign-in must have been begun by this session and in this browser.
func (s *Service) begunBy(actor rbac.Actor, p *Provider, sealed, verifier string) (begun state, ok bool) {
	err := s.opts.Sealer.Open(purpose, secret.Token(sealed), &begun)
	return begun, err == nil && begun.User == actor.UserID && begun.Session == actor.KeyID && begun.Provider == p.ID && verifier != "" &&
		subtle.ConstantTimeCompare([]byte(begun.Verifier), []byte(hashOf(verifier))) == 1
}

func (s *Service) finish(w http.ResponseWriter, r *http.Request, p *Provider) error {
	actor, q := httpapi.ActorFrom(r.Context()), r.URL.Query()
	verifier := ""
	if c, err := r.Cookie(verifierCookie); err == nil {
		verifier = c.Value
	}
	http.SetCookie(w, s.cookie(p, "", -1))
	begun, ok := s.begunBy(actor, p, q.Get("state"), verifier)
	if !ok {
		s.log.InfoContext(r.Context(), "external sign-in refused: begun by another session", "user", actor.UserID, "provider", p.ID)
		s.sendBack(w, r, p, failedState, "")
		return nil
	}
	failed := failedDenied
	if code := q.Get("code"); code != "" {
		var err error
		if failed, err = s.exchange(r.Context(), actor.UserID, p, code, verifier); err != nil {
			return err
		}
	}
	if failed != "" {
		s.log.InfoContext(r.Context(), "external sign-in failed", "user", actor.UserID, "provider", p.ID, "reason", failed)
	}
	s.sendBack(w, r, p, failed, begun.Back)
	return nil
}

// exchange turns a code into a link, or returns why it cannot. It blocks for two requests to the provider.
func (s *Service) exchange(ctx context.Context, user uuid.UUID, p *Provider, code, verifier string) (failed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	var got *oauth2.Token
	err = s.ask(ctx, func(ctx context.Context) error {
		var err error
		got, err = s.config(p).Exchange(ctx, code, oauth2.VerifierOption(verifier))
		return err
	})
	if err != nil {
		s.log.WarnContext(ctx, "cannot exchange external code", "user", user, "provider", p.ID, "err", describe(err))
		if _, answered := errors.AsType[*oauth2.RetrieveError](err); answered {
			return failedExchange, nil
		}
		return failedAway, nil
	}
	good, err := s.validate(ctx, p, tokens{Access: got.AccessToken})
	if err != nil {
		s.log.WarnContext(ctx, "cannot validate external token", "user", user, "provider", p.ID, "err", err)
		return failedAway, nil
	}
	if !good {
		return failedRefused, nil
	}
	return "", s.Link(ctx, user, p.ID, got)
}

// sendBack redirects to where the sign-in was begun, or to the provider's page if it failed.
func (s *Service) sendBack(w http.ResponseWriter, r *http.Request, p *Provider, failed, back string) {
	to := s.opts.AccessURL.JoinPath("external-auth", p.ID)
	if failed != "" {
		to.RawQuery = url.Values{"failed": {failed}}.Encode()
	} else if back != "" {
		http.Redirect(w, r, strings.TrimSuffix(s.opts.AccessURL.String(), "/")+back, http.StatusSeeOther)
		return
	}
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}

// isLocal reports whether text is a path of this server, with or without a query. The caller appends it to the access URL's
// origin.
func isLocal(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxBack && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") && !strings.ContainsAny(text, "\\\r\n\t") &&
		u.Scheme == "" && u.Host == "" && u.User == nil
}

func hashOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return hex.EncodeToString(sum[:])
}

func noProvider(id string) *fault.Error {
	return fault.New(fault.NotFound, "This server has no login provider %.64q.", id).
		WithDetail("Your administrator configures providers with %s0_ID and so on.", envPrefix)
}
