package extauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// With the device flow (RFC 8628), the service needs no way to this server: the user enters a code there, on any
// device.
//
//	browser ── GET …/external-auth/{id}/device ──▶ server ──▶ service: the code to enter, and the device code
//	        ── POST …/external-auth/{id}/device ──▶ server ──▶ service: again and again until the user has entered the code
//
// The device code that clients see is signed, and names the user, the session and the service: a page of another site
// cannot have a browser finish what another user has begun, which would link that user's account.

const devicePurpose = "external auth device" // of the signed device code

// What is accepted of a service's answer.
const (
	maxDeviceCode   = 1024 // bytes
	maxUserCode     = 64   // bytes
	deviceInterval  = 5    // seconds, if the service names none (RFC 8628, 3.2)
	maxInterval     = 60   // seconds
	minDeviceExpiry = time.Minute
	maxDeviceExpiry = 30 * time.Minute
)

// Words of RFC 8628 for a code that was not entered, as clients read them in a fault's detail.
const (
	devicePending  = "authorization_pending"
	deviceSlowDown = "slow_down"
	deviceExpired  = "expired_token"
	deviceDenied   = "access_denied"
)

// deviceState is what a device code of ours contains.
type deviceState struct {
	User     uuid.UUID `json:"u"`
	Session  string    `json:"s"`
	Provider string    `json:"p"`
	Code     string    `json:"c"`
}

// beginDevice has the service issue a code that the user enters there.
func (s *Service) beginDevice(w http.ResponseWriter, r *http.Request) error {
	p, err := s.deviceProvider(r)
	if err != nil {
		return err
	}
	httpapi.NoStore(w.Header())
	var got sdk.ExternalAuthDevice
	if err := s.Ask(r.Context(), func(ctx context.Context) (err error) {
		got, err = s.DeviceCode(ctx, p.DeviceURL, p.ClientID, p.Scopes)
		return err
	}); err != nil {
		if fault.As(err) != nil {
			return err
		}
		s.log.WarnContext(r.Context(), "cannot get external device code", "provider", p.ID, "err", err)
		return fault.New(fault.Unavailable, "%s did not issue a code.", p.DisplayName).
			WithDetail("Try again in a moment. If it happens again, ask your admin to check the provider's configuration.")
	}
	actor := httpapi.ActorFrom(r.Context())
	code, err := s.opts.Signer.Sign(devicePurpose, deviceState{
		User: actor.UserID, Session: actor.KeyID, Provider: p.ID, Code: got.DeviceCode,
	}, time.Duration(got.ExpiresIn)*time.Second)
	if err != nil {
		return err
	}
	got.DeviceCode = code.Reveal()
	return httpapi.Write(w, http.StatusOK, got)
}

// finishDevice asks the service whether the user has entered the code, and links the account if so. Until then the
// answer is the fault Invalid, with the service's word for it as the detail: clients ask again.
func (s *Service) finishDevice(w http.ResponseWriter, r *http.Request) error {
	p, err := s.deviceProvider(r)
	if err != nil {
		return err
	}
	var req sdk.ExternalAuthDeviceExchange
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	var begun deviceState
	if s.opts.Signer.Verify(devicePurpose, secret.Token(req.DeviceCode), &begun) != nil ||
		begun.User != actor.UserID || begun.Session != actor.KeyID || begun.Provider != p.ID {
		s.log.InfoContext(r.Context(), "external sign-in refused: begun by another session", "user", actor.UserID,
			"provider", p.ID)
		return fault.New(fault.Invalid, "The code was not requested in this session, or has expired.").
			WithDetail("%s", deviceExpired)
	}
	ctx, cancel := context.WithTimeout(r.Context(), workTimeout)
	defer cancel()
	var got *oauth2.Token
	err = s.Ask(ctx, func(ctx context.Context) error {
		cfg := s.config(p)
		// To try both styles, the library would ask twice, and the service would answer slow_down.
		cfg.Endpoint.AuthStyle = oauth2.AuthStyleInParams
		cfg.RedirectURL = ""
		var err error
		got, err = cfg.Exchange(ctx, "",
			oauth2.SetAuthURLParam("grant_type",
				"urn:ietf:params:oauth:grant-type:device_code"), oauth2.SetAuthURLParam("device_code", begun.Code))
		return err
	})
	if err != nil {
		return s.notYet(ctx, actor.UserID, p, err)
	}
	failed, err := s.accept(ctx, actor.UserID, p, got)
	switch {
	case err != nil:
		return err
	case failed == failedAway:
		return fault.New(fault.Unavailable, "%s did not say whether its token is valid.", p.DisplayName).
			WithDetail("Start again with a new code.")
	case failed != "":
		return fault.New(fault.Invalid, "%s rejected the token that it had issued.", p.DisplayName).
			WithDetail("Ask your admin to check the provider's configuration.")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// deviceProvider returns the provider of a request, or the fault Invalid if it has no device flow.
func (s *Service) deviceProvider(r *http.Request) (*Provider, error) {
	p := s.provider(r.PathValue("externalauth"))
	if p == nil {
		return nil, noProvider(r.PathValue("externalauth"))
	}
	if !p.Device {
		return nil, fault.New(fault.Invalid, "Accounts of %s are linked in the browser, without a code.", p.DisplayName).
			WithDetail("Open %s", s.PageURL(p.ID))
	}
	return p, nil
}

// notYet returns the fault for a device code that was not exchanged (RFC 8628, 3.5).
func (s *Service) notYet(ctx context.Context, user uuid.UUID, p *Provider, err error) error {
	if fault.As(err) != nil {
		return err
	}
	word := ""
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		word = refused.ErrorCode
	}
	var f *fault.Error
	switch word {
	case devicePending, deviceSlowDown: // not worth a line of the log
		return fault.New(fault.Invalid, "The code has not been entered at %s yet.", p.DisplayName).
			WithDetail("%s", word)
	case deviceExpired:
		f = fault.New(fault.Invalid, "The code has expired.").WithDetail("%s", word)
	case deviceDenied:
		f = fault.New(fault.Invalid, "The sign-in was declined at %s.", p.DisplayName).WithDetail("%s", word)
	default:
		s.log.WarnContext(ctx, "cannot exchange external code", "user", user, "provider", p.ID, "err", describe(err))
		return fault.New(fault.Unavailable, "%s did not accept the code.", p.DisplayName).
			WithDetail("Start again with a new code. If it happens again, ask your admin to check the provider's configuration.")
	}
	s.log.InfoContext(ctx, "external sign-in failed", "user", user, "provider", p.ID, "reason", word)
	return f
}

// deviceAnswer is a service's answer to a request for codes (RFC 8628, 3.2).
type deviceAnswer struct {
	DeviceCode      string `json:"device_code"`
	UserCode        string `json:"user_code"`
	VerificationURI string `json:"verification_uri"`
	VerificationURL string `json:"verification_url"` // as some services call it
	ExpiresIn       int    `json:"expires_in"`       // seconds
	Interval        int    `json:"interval"`         // seconds
}

// DeviceCode requests codes for the device flow at an address of a service, and checks the answer. It blocks until the
// service has answered or ctx ends: the request is not the library's, which ignores the context. Call it in Ask.
func (s *Service) DeviceCode(
	ctx context.Context, at, clientID string, scopes []string,
) (sdk.ExternalAuthDevice, error) {
	form := url.Values{"client_id": {clientID}}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(form.Encode()))
	if err != nil {
		return sdk.ExternalAuthDevice{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return sdk.ExternalAuthDevice{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return sdk.ExternalAuthDevice{}, fmt.Errorf("%s answered %d", at, resp.StatusCode)
	}
	var got deviceAnswer
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return sdk.ExternalAuthDevice{}, fmt.Errorf("%s did not answer with codes in JSON", at)
	}
	if got.VerificationURI == "" {
		got.VerificationURI = got.VerificationURL
	}
	// The user is shown both, and opens the address.
	if _, err := origin(got.VerificationURI); err != nil || len(got.VerificationURI) > maxURL {
		return sdk.ExternalAuthDevice{}, fmt.Errorf("%s names no http or https page to enter a code at", at)
	}
	if got.DeviceCode == "" || len(got.DeviceCode) > maxDeviceCode || got.UserCode == "" ||
		len(got.UserCode) > maxUserCode ||
		strings.ContainsFunc(got.UserCode, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
		return sdk.ExternalAuthDevice{}, fmt.Errorf("%s answered with codes that cannot be used", at)
	}
	got.ExpiresIn = min(max(got.ExpiresIn, int(minDeviceExpiry/time.Second)), int(maxDeviceExpiry/time.Second))
	if got.Interval <= 0 {
		got.Interval = deviceInterval
	}
	return sdk.ExternalAuthDevice{
		DeviceCode: got.DeviceCode, UserCode: got.UserCode, VerificationURI: got.VerificationURI,
		ExpiresIn: got.ExpiresIn, Interval: min(got.Interval, maxInterval),
	}, nil
}
