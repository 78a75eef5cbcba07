package signin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/redirect"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// conversion is what a user who proved the password may do: begin a sign-in whose identity the account then belongs to.
type conversion struct {
	User   uuid.UUID     `json:"u"`
	ToType sdk.LoginType `json:"t"`
}

// authMethods reports how users can sign in. A password always works for owners, so that a broken provider does not
// lock every user out.
func (s *Service) authMethods(w http.ResponseWriter, _ *http.Request) error {
	out := sdk.AuthMethods{
		TermsOfServiceURL: s.opts.TermsOfServiceURL, Password: sdk.AuthMethod{Enabled: !s.opts.OnlyOwnersUsePasswords},
		Github: sdk.GitHubAuthMethod{Enabled: s.opts.GitHub != nil},
	}
	if o := s.opts.OIDC; o != nil {
		out.OIDC = sdk.OIDCAuthMethod{Enabled: true, SignInText: o.cfg.SignInText, IconURL: o.cfg.IconURL}
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// loginType reports how a user signs in, to the user and to those who may see the account.
func (s *Service) loginType(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.UserLoginType{LoginType: sdk.LoginType(user.LoginType)})
}

// convert begins to convert the caller's account from a password to an identity provider.
func (s *Service) convert(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Update, rbac.User)
	if err != nil {
		return err
	}
	var req sdk.ConvertLoginRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if user.ID != httpapi.ActorFrom(r.Context()).UserID {
		return fault.New(fault.Forbidden, "Only %s can change how the account signs in.", user.Username)
	}
	switch {
	case req.ToType != sdk.LoginOIDC && req.ToType != sdk.LoginGitHub:
		return fault.New(fault.Invalid, "The account cannot be converted.").
			WithField("to_type", "must be oidc or github")
	case req.ToType == sdk.LoginOIDC && s.opts.OIDC == nil, req.ToType == sdk.LoginGitHub && s.opts.GitHub == nil:
		return fault.New(fault.Invalid, "Sign-in with %s is not configured.", req.ToType.Name()).
			WithField("to_type", "is not configured")
	case user.LoginType != string(sdk.LoginPassword):
		return fault.New(fault.Conflict, "Your account already signs in with %s.", sdk.LoginType(user.LoginType).Name())
	}
	if err := s.opts.Accounts.ProvePassword(w, r, user, req.Password); err != nil {
		return err
	}
	token, err := s.opts.Signer.Sign(convertPurpose, conversion{user.ID, req.ToType}, redirect.Lifetime)
	if err != nil {
		return err
	}
	http.SetCookie(w, s.conversionCookie(redirect.Hash(token.Reveal()), int(redirect.Lifetime/time.Second)))
	return httpapi.Write(w, http.StatusCreated, sdk.OAuthConversionResponse{
		StateString: token.Reveal(), ExpiresAt: time.Now().Add(redirect.Lifetime), ToType: req.ToType, UserID: user.ID,
	})
}

func (s *Service) conversionCookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: s.cookieName(convertCookie), Value: value, Path: "/", MaxAge: age, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: s.opts.AccessURL.Scheme == "https",
	}
}

// converting returns the account that a sign-in converts, or uuid.Nil. Only the browser that proved the password may
// begin it: otherwise a link would bind the identity of the user who opens it to the account of the one who sent it.
func (s *Service) converting(w http.ResponseWriter, r *http.Request, t sdk.LoginType) (uuid.UUID, error) {
	text := r.URL.Query().Get("oidc_merge_state")
	if text == "" {
		return uuid.Nil, nil
	}
	var asked conversion
	cookie, err := r.Cookie(s.cookieName(convertCookie))
	if err != nil || cookie.Value != redirect.Hash(text) ||
		s.opts.Signer.Verify(convertPurpose, secret.Token(text), &asked) != nil || asked.ToType != t {
		return uuid.Nil, fault.New(fault.Unauthenticated, "This conversion was not started in this browser, or it took too long.").
			WithDetail("Start it again on your account page.")
	}
	http.SetCookie(w, s.conversionCookie("", -1))
	return asked.User, nil
}

// claims reports what the identity provider said of the caller at the last sign-in.
func (s *Service) oidcClaims(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	link, err := s.opts.DB.GetUserLink(ctx, dbsqlc.GetUserLinkParams{
		UserID: httpapi.ActorFrom(ctx).UserID, LoginType: string(sdk.LoginOIDC),
	})
	if database.IsNotFound(err) {
		return fault.New(fault.NotFound, "You have not signed in with %s.", sdk.LoginOIDC.Name())
	}
	if err != nil {
		return fmt.Errorf("read claims: %w", err)
	}
	var out sdk.OIDCClaimsResponse
	if err := json.Unmarshal(link.Claims, &out.Claims); err != nil {
		return fmt.Errorf("decode claims: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, out)
}
