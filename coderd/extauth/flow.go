package extauth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/redirect"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	purpose = "external auth" // of the signed state
	// verifierCookie keeps the PKCE verifier in the browser that began the sign-in, under the provider's own path.
	verifierCookie = "coder_external_auth_verifier"
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
	if redirect.Returns(r) {
		return s.finish(w, r, p)
	}
	// A page of another site, or of an app on a neighbouring host, must not link an account by a redirect that the
	// provider answers immediately: a visitor from there first sees the page with the button.
	if redirect.Crafted(r) {
		s.sendBack(w, r, p, "", "")
		return nil
	}
	if p.Device { // the page shows the code to enter
		s.sendBack(w, r, p, "", "")
		return nil
	}
	return s.begin(w, r, p)
}

func (s *Service) begin(w http.ResponseWriter, r *http.Request, p *Provider) error {
	back := r.URL.Query().Get("redirect")
	if back != "" && !redirect.IsLocal(back) {
		return fault.New(fault.Invalid, "A sign-in can redirect only to this server.").
			WithField("redirect", "must be a path of this server")
	}
	actor := httpapi.ActorFrom(r.Context())
	signedState, verifier, err := s.flow(p).Begin(w, func(hash string) any {
		return state{User: actor.UserID, Session: actor.KeyID, Provider: p.ID, Verifier: hash, Back: back}
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, s.config(p).AuthCodeURL(signedState.Reveal(), oauth2.S256ChallengeOption(verifier)),
		http.StatusSeeOther)
	return nil
}

func (s *Service) flow(p *Provider) redirect.Flow {
	return redirect.Flow{
		Signer: s.opts.Signer, Purpose: purpose, Cookie: verifierCookie, Path: s.callbackURL(p).Path,
		Secure: s.opts.AccessURL.Scheme == "https",
	}
}

func (s *Service) finish(w http.ResponseWriter, r *http.Request, p *Provider) error {
	actor, q := httpapi.ActorFrom(r.Context()), r.URL.Query()
	var begun state
	verifier, ok := s.flow(p).Finish(w, r, &begun, func() string { return begun.Verifier })
	if !ok || begun.User != actor.UserID || begun.Session != actor.KeyID || begun.Provider != p.ID {
		s.log.InfoContext(r.Context(), "external sign-in refused: begun by another session", "user", actor.UserID,
			"provider", p.ID)
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
		s.log.InfoContext(r.Context(), "external sign-in failed", "user", actor.UserID, "provider", p.ID, "reason",
			failed)
	}
	s.sendBack(w, r, p, failed, begun.Back)
	return nil
}

// exchange turns a code into a link, or returns why it cannot. It blocks for two requests to the provider.
func (s *Service) exchange(
	ctx context.Context, user uuid.UUID, p *Provider, code, verifier string,
) (failed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	var got *oauth2.Token
	err = s.Ask(ctx, func(ctx context.Context) error {
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
	return s.accept(ctx, user, p, got)
}

// accept links the account whose token a provider has issued, or returns why it cannot. It blocks for a request to the
// provider.
func (s *Service) accept(
	ctx context.Context, user uuid.UUID, p *Provider, got *oauth2.Token,
) (failed string, err error) {
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

func noProvider(id string) *fault.Error {
	return fault.New(fault.NotFound, "This server has no login provider %.64q.", id).
		WithDetail("Your administrator configures providers with %s0_ID and so on.", envPrefix)
}
