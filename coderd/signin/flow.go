package signin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/redirect"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/webpage"
)

const (
	purpose        = "sign-in"             // of the signed state
	convertPurpose = "convert login"       // of the signed conversion
	verifierCookie = "coder_sign_in"       // holds the PKCE verifier
	convertCookie  = "coder_convert_login" // holds the hash of the conversion that this browser began
	hostPrefix     = "__Host-"
)

// state is what the provider returns together with the code. It is not secret.
type state struct {
	LoginType sdk.LoginType `json:"t"`
	Verifier  string        `json:"v"` // its hash
	Back      string        `json:"b,omitempty"`
	Convert   uuid.UUID     `json:"c,omitzero"` // the account that is being converted
	Device    bool          `json:"d,omitempty"`
}

// provider is one that a browser is redirected to.
type provider interface {
	// pageURL returns the address of the sign-in page.
	pageURL(ctx context.Context, state, verifier string) (string, error)
	// identify exchanges a code for an identity that the provider admits.
	identify(ctx context.Context, code, verifier string) (identity, error)
	policy() policy
}

// nonceOf returns the nonce that binds an ID token to the browser that holds the verifier.
func nonceOf(verifier string) string { return redirect.Hash("nonce " + verifier) }

// cookieName returns a cookie's name: over HTTPS one that neighbouring hosts cannot set.
func (s *Service) cookieName(name string) string {
	if s.opts.AccessURL.Scheme == "https" {
		return hostPrefix + name
	}
	return name
}

func (s *Service) flow() redirect.Flow {
	return redirect.Flow{
		Signer: s.opts.Signer, Purpose: purpose, Cookie: s.cookieName(verifierCookie), Path: "/",
		Secure: s.opts.AccessURL.Scheme == "https",
	}
}

func (s *Service) oidcCallback(w http.ResponseWriter, r *http.Request) error {
	if s.opts.OIDC == nil {
		return notConfigured(sdk.LoginOIDC)
	}
	return s.callback(w, r, sdk.LoginOIDC, s.opts.OIDC)
}

func (s *Service) githubCallback(w http.ResponseWriter, r *http.Request) error {
	if s.opts.GitHub == nil {
		return notConfigured(sdk.LoginGitHub)
	}
	return s.callback(w, r, sdk.LoginGitHub, s.opts.GitHub)
}

func notConfigured(t sdk.LoginType) error {
	return fault.New(fault.NotFound, "Sign-in with %s is not configured.", t.Name()).
		WithDetail("The operator configures it with the options of coder server.")
}

// callback begins a sign-in, and also handles the return from the provider. It answers people with a page.
func (s *Service) callback(w http.ResponseWriter, r *http.Request, t sdk.LoginType, p provider) error {
	httpapi.NoStore(w.Header())
	var err error
	switch {
	case redirect.Returns(r):
		err = s.finish(w, r, t, p)
	case redirect.Crafted(r):
		http.Redirect(w, r, s.opts.AccessURL.JoinPath("login").String(), http.StatusSeeOther)
	default:
		err = s.begin(w, r, t, p)
	}
	return s.explain(w, r, err)
}

// explain shows a fault as a page to people, from which they can try again. Other errors are the caller's.
func (s *Service) explain(w http.ResponseWriter, r *http.Request, err error) error {
	f := fault.As(err)
	if f == nil || f.Code == fault.Internal {
		return err
	}
	s.log.InfoContext(r.Context(), "sign-in refused", "addr", httpapi.ClientAddr(r.Context()), "reason", f.Message,
		"err", fmt.Sprintf("%.500v", f.Cause))
	return webpage.Write(w, r, webpage.Page{
		Status: f.Code.HTTPStatus(), Title: strings.TrimSuffix(f.Message, "."), Text: f.Detail,
		Link: s.opts.AccessURL.JoinPath("login").String(), LinkText: "Back to the sign-in page",
	})
}

func (s *Service) begin(w http.ResponseWriter, r *http.Request, t sdk.LoginType, p provider) error {
	back := r.URL.Query().Get("redirect")
	if back != "" && !redirect.IsLocal(back) {
		return fault.New(fault.Invalid, "A sign-in can redirect only to this server.").
			WithField("redirect", "must be a path of this server")
	}
	user, err := s.converting(w, r, t)
	if err != nil {
		return err
	}
	device := t == sdk.LoginGitHub && s.opts.GitHub.cfg.DeviceFlow
	signedState, verifier, err := s.flow().Begin(w, func(hash string) any {
		return state{LoginType: t, Verifier: hash, Back: back, Convert: user, Device: device}
	})
	if err != nil {
		return err
	}
	if device {
		http.Redirect(w, r, s.devicePage(signedState.Reveal()), http.StatusSeeOther)
		return nil
	}
	var page string
	if err := s.opts.Tokens.Ask(r.Context(), func(ctx context.Context) error {
		page, err = p.pageURL(ctx, signedState.Reveal(), verifier)
		return err
	}); err != nil {
		return err
	}
	http.Redirect(w, r, page, http.StatusSeeOther)
	return nil
}

// errorForm matches the error codes that a provider may return (RFC 6749, 4.1.2.1).
var errorForm = lazyregexp.New(`^[a-z_]{1,64}$`)

func (s *Service) finish(w http.ResponseWriter, r *http.Request, t sdk.LoginType, p provider) error {
	ctx, q := r.Context(), r.URL.Query()
	var begun state
	if g := s.opts.GitHub; t == sdk.LoginGitHub && g.cfg.DeviceFlow {
		if _, ok := s.flow().Check(r, &begun, func() string { return begun.Verifier }); ok && begun.LoginType == t &&
			begun.Device {
			return s.finishDevice(w, r, begun)
		}
	}
	verifier, ok := s.flow().Finish(w, r, &begun, func() string { return begun.Verifier })
	if !ok || begun.LoginType != t || begun.Device {
		return fault.New(fault.Unauthenticated, "This sign-in was not started in this browser, or it took too long.").
			WithDetail("Sign in again.")
	}
	if code := q.Get("error"); code != "" || q.Get("code") == "" {
		return declined(code)
	}
	var who identity
	if err := s.opts.Tokens.Ask(ctx, func(ctx context.Context) (err error) {
		who, err = p.identify(ctx, q.Get("code"), verifier)
		return err
	}); err != nil {
		return err
	}
	if err := s.enter(w, r, who, p.policy(), begun.Convert); err != nil {
		return err
	}
	if begun.Back == "" {
		begun.Back = "/"
	}
	http.Redirect(w, r, strings.TrimSuffix(s.opts.AccessURL.String(), "/")+begun.Back, http.StatusSeeOther)
	return nil
}

// declined returns the fault for a sign-in that the provider, or the user there, ended without a code.
func declined(code string) error {
	f := fault.New(fault.Unauthenticated,
		"The sign-in was declined at the identity provider.").WithDetail("Sign in again.")
	if code != "" && code != "access_denied" && errorForm().MatchString(code) {
		f = fault.New(fault.Unauthenticated, "The identity provider ended the sign-in with the error %s.", code).
			WithDetail("Sign in again. If this happens again, the operator must check the provider's log.")
	}
	return f
}

// enter starts a session for an identity, and stores it in the browser.
func (s *Service) enter(w http.ResponseWriter, r *http.Request, who identity, p policy, convert uuid.UUID) error {
	ctx := r.Context()
	var user dbsqlc.User
	var token secret.Token
	var synced idpsync.Report
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if convert != uuid.Nil {
			if err = p.admitGroups(who); err == nil {
				user, err = s.convertTo(ctx, q, who, convert)
			}
		} else {
			user, err = s.account(ctx, q, who, p)
		}
		if err != nil {
			return err
		}
		if err := s.bind(ctx, q, user, who); err != nil {
			return err
		}
		if convert != uuid.Nil {
			if _, err := q.EndUserSessions(ctx, dbsqlc.EndUserSessionsParams{
				UserID: user.ID, EndReason: "Your account now signs in with " + who.LoginType.Name() + ".",
			}); err != nil {
				return err
			}
		}
		if who.LoginType == sdk.LoginOIDC {
			if synced, err = s.opts.IDPSync.Sync(ctx, q, user.ID, who.Said); err != nil {
				return err
			}
		}
		token, err = s.opts.Accounts.StartSession(ctx, q, user)
		return err
	})
	if f := fault.As(err); f != nil {
		named := audit.Account{ID: user.ID, Name: cmp.Or(user.Username, who.Email)}
		e := audit.Entry{Action: audit.Login, Kind: audit.APIKey, ID: named.ID, Name: named.Name, Status: f.Code.HTTPStatus(), User: &named, Fields: map[string]any{"login_type": who.LoginType}}
		if err := audit.Record(ctx, s.opts.DB.Queries, e); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	synced.Log(ctx, s.log, user.Username)
	s.log.InfoContext(ctx, "user signed in", "user", user.Username, "provider", who.LoginType, "addr",
		httpapi.ClientAddr(ctx))
	s.opts.Accounts.KeepSession(w, token)
	return nil
}
