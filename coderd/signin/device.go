package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// With the device flow, GitHub need not reach the server, nor redirect to it: the user enters a code at GitHub, on any
// device.
//
//	browser ── GET …/github/callback ──▶ /login/device?state    the browser is bound as in other flows
//	        ── GET …/github/device ──▶ the code that the user enters at GitHub
//	        ── GET …/github/callback?code=DEVICE CODE&state ──▶ again and again until the user has entered it

// githubDevice requests a code that the user enters at GitHub.
func (s *Service) githubDevice(w http.ResponseWriter, r *http.Request) error {
	g := s.opts.GitHub
	if g == nil || !g.cfg.DeviceFlow {
		return fault.New(fault.Invalid, "The device flow of GitHub is not configured.").
			WithDetail("The operator configures it with --oauth2-github-device-flow.")
	}
	httpapi.NoStore(w.Header())
	var got sdk.ExternalAuthDevice
	if err := s.opts.Tokens.Ask(r.Context(), func(ctx context.Context) (err error) {
		got, err = s.opts.Tokens.DeviceCode(ctx, g.oauth2.Endpoint.DeviceAuthURL, g.cfg.ClientID, g.oauth2.Scopes)
		return err
	}); err != nil {
		if fault.As(err) != nil {
			return err
		}
		return refusedCode(err)
	}
	return httpapi.Write(w, http.StatusOK, got)
}

// devicePage returns the dashboard's page for the device flow.
func (s *Service) devicePage(state string) string {
	u := s.opts.AccessURL.JoinPath("login", "device")
	u.RawQuery = url.Values{"state": {state}}.Encode()
	return u.String()
}

// finishDevice asks whether the user has entered the code. Until then the answer is the fault Invalid, with GitHub's
// word for it as the detail: the page asks again.
func (s *Service) finishDevice(w http.ResponseWriter, r *http.Request, begun state) error {
	g := s.opts.GitHub
	var who identity
	err := s.opts.Tokens.Ask(r.Context(), func(ctx context.Context) error {
		got, err := g.oauth2.Exchange(ctx, "",
			oauth2.SetAuthURLParam("grant_type", "urn:ietf:params:oauth:grant-type:device_code"), oauth2.SetAuthURLParam("device_code", r.URL.Query().Get("code")))
		if err != nil {
			return notYet(err)
		}
		who, err = g.describe(ctx, got)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.enter(w, r, who, g.policy(), begun.Convert); err != nil {
		return err
	}
	if begun.Back == "" {
		begun.Back = "/"
	}
	s.flow().End(w)
	return httpapi.Write(w, http.StatusOK, sdk.OAuth2DeviceFlowCallbackResponse{
		RedirectURL: strings.TrimSuffix(s.opts.AccessURL.String(), "/") + begun.Back,
	})
}

// notYet returns the fault for a device code that was not exchanged (RFC 8628, 3.5).
func notYet(err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return refusedCode(err)
	}
	switch refused.ErrorCode {
	case "authorization_pending", "slow_down":
		return fault.New(fault.Invalid, "The code has not been entered at GitHub yet.").
			WithDetail("%s", refused.ErrorCode)
	case "expired_token":
		return fault.New(fault.Unauthenticated, "The code has expired.").WithDetail("Sign in again.")
	case "access_denied":
		return declined("")
	}
	return refusedCode(err)
}
