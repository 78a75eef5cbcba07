package signin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// OIDCConfig is an OpenID provider, as configured by the operator.
type OIDCConfig struct {
	IssuerURL    string
	ClientID     string
	ClientSecret secret.Token
	// ClientKey and ClientCert are the PEM of an RSA key and its certificate, which prove who this server is instead of
	// a secret.
	ClientKey, ClientCert []byte
	Scopes                []string
	// EmailDomains are the domains whose addresses may sign in; empty means all.
	EmailDomains []string
	// EmailField, UsernameField and NameField name the claims.
	EmailField, UsernameField, NameField string
	IgnoreEmailVerified                  bool // the operator vouches for the provider's addresses
	IgnoreUserInfo                       bool
	AuthURLParams                        map[string]string
	SignInText, IconURL                  string
	AllowSignups                         bool
	SignupsDisabledText                  string
	// AllowedGroups are the values of GroupField that may sign in; empty means all users.
	GroupField    string
	AllowedGroups []string
}

// clockSkew is how far this server's clock may be ahead of the provider's.
const clockSkew = time.Minute

// OIDC is an OpenID provider. It is asked for its endpoints and keys when they are needed first, so that a server
// starts while its provider does not answer. Safe for concurrent use.
type OIDC struct {
	cfg      OIDCConfig
	callback string
	prove    *assertions // nil for a client secret

	mu       sync.Mutex
	provider *oidc.Provider // guarded by mu: nil until the provider has answered
}

// NewOIDC returns a provider. It returns the fault Invalid if the configuration cannot work.
func NewOIDC(cfg OIDCConfig, accessURL *url.URL) (*OIDC, error) {
	u, err := url.Parse(cfg.IssuerURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.Invalid, "--oidc-issuer-url %q must start with http:// or https://", cfg.IssuerURL)
	}
	if cfg.ClientID == "" {
		return nil, fault.New(fault.Invalid, "--oidc-client-id is missing").
			WithDetail("The identity provider shows it when you register an application there.")
	}
	o := &OIDC{cfg: cfg, callback: accessURL.JoinPath("api/v2/users/oidc/callback").String()}
	switch keys := len(cfg.ClientKey) > 0 || len(cfg.ClientCert) > 0; {
	case keys && cfg.ClientSecret != "":
		return nil, fault.New(fault.Invalid, "--oidc-client-secret and --oidc-client-key-file cannot be combined")
	case keys:
		if o.prove, err = newAssertions(cfg.ClientID, cfg.ClientKey, cfg.ClientCert); err != nil {
			return nil, err
		}
	case cfg.ClientSecret == "":
		return nil, fault.New(fault.Invalid, "--oidc-client-secret is missing").
			WithDetail("Set CODER_OIDC_CLIENT_SECRET, or --oidc-client-key-file and --oidc-client-cert-file for a provider that takes a key.")
	}
	for _, name := range []string{"state", "nonce", "redirect_uri", "client_id", "response_type", "code_challenge", "code_challenge_method", "scope"} {
		if _, given := cfg.AuthURLParams[name]; given {
			return nil, fault.New(fault.Invalid, "--oidc-auth-url-params cannot contain %s, which the server sets",
				name)
		}
	}
	if len(cfg.AllowedGroups) > 0 && cfg.GroupField == "" {
		return nil, fault.New(fault.Invalid, "--oidc-allowed-groups requires --oidc-group-field").
			WithDetail("It names the claim with the groups, such as groups.")
	}
	if !slices.Contains(cfg.Scopes, oidc.ScopeOpenID) {
		return nil, fault.New(fault.Invalid, "--oidc-scopes must include openid")
	}
	return o, nil
}

// discover returns the provider's endpoints and keys. It asks the provider until that has answered once.
func (o *OIDC) discover(ctx context.Context) (*oidc.Provider, error) {
	o.mu.Lock()
	known := o.provider
	o.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := oidc.NewProvider(ctx, o.cfg.IssuerURL)
	if wrong, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return nil, fault.New(fault.Conflict, "The identity provider calls itself %q, but this server expects %q: %w", wrong.Discovered, o.cfg.IssuerURL, err).
			WithDetail("The operator must set --oidc-issuer-url to the provider's own name, letter by letter.")
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "The identity provider does not answer: %w", err).
			WithDetail("Try again in a moment. The server's log has the cause.")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.provider = found
	return found, nil
}

func (o *OIDC) config(p *oidc.Provider) *oauth2.Config {
	c := &oauth2.Config{
		ClientID: o.cfg.ClientID, ClientSecret: o.cfg.ClientSecret.Reveal(), Scopes: o.cfg.Scopes,
		RedirectURL: o.callback, Endpoint: p.Endpoint(),
	}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	// How clients authenticate (OpenID Connect Discovery, 3); client_secret_basic unless the provider says otherwise.
	// The library would try both ways, and send each refused request twice.
	var known struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&known); o.prove != nil || err == nil && len(known.Methods) > 0 &&
		!slices.Contains(known.Methods, "client_secret_basic") {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return c
}

// pageURL returns the address of the provider's sign-in page.
func (o *OIDC) pageURL(ctx context.Context, state, verifier string) (string, error) {
	p, err := o.discover(ctx)
	if err != nil {
		return "", err
	}
	opts := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier), oidc.Nonce(nonceOf(verifier))}
	for name, value := range o.cfg.AuthURLParams {
		opts = append(opts, oauth2.SetAuthURLParam(name, value))
	}
	return o.config(p).AuthCodeURL(state, opts...), nil
}

// identify exchanges a code for an identity. It blocks for a few requests to the provider. Its faults tell the user
// what is wrong.
func (o *OIDC) identify(ctx context.Context, code, verifier string) (identity, error) {
	p, err := o.discover(ctx)
	if err != nil {
		return identity{}, err
	}
	opts := []oauth2.AuthCodeOption{oauth2.VerifierOption(verifier)}
	proof, err := o.prove.options(p.Endpoint().TokenURL)
	if err != nil {
		return identity{}, err
	}
	got, err := o.config(p).Exchange(ctx, code, append(opts, proof...)...)
	if err != nil {
		return identity{}, refusedCode(err)
	}
	said, id, err := o.verify(ctx, p, got, nonceOf(verifier))
	if err != nil {
		return identity{}, err
	}
	if !o.cfg.IgnoreUserInfo && p.UserInfoEndpoint() != "" {
		if err := o.addUserInfo(ctx, p, got, id.Subject, said); err != nil {
			return identity{}, err
		}
	}
	return o.identity(id, said, got)
}

// refusedCode returns the fault for a code that the provider did not exchange.
func refusedCode(err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok:
		return fault.New(fault.Unavailable, "The identity provider did not complete the sign-in: %w", err).
			WithDetail("Try again in a moment. The server's log has the cause.")
	case refused.ErrorCode == "invalid_client", refused.ErrorCode == "unauthorized_client", refused.Response != nil && refused.Response.StatusCode == http.StatusUnauthorized:
		return fault.New(fault.Conflict, "The identity provider does not accept this server.").
			WithDetail("The operator must check the client ID, the client's secret or key, and the callback URL at the provider.")
	case refused.ErrorCode == "invalid_grant":
		return fault.New(fault.Unauthenticated, "The identity provider does not accept the sign-in's code: it was used before, or has expired.").WithDetail("Sign in again.")
	}
	return fault.New(fault.Unauthenticated, "The identity provider refused the sign-in with the error %.64q.", refused.ErrorCode).WithDetail("Sign in again. If this happens again, the operator must check the provider's log.")
}

// renewed returns what the provider says of a user together with renewed tokens. It blocks for a few requests to the
// provider.
func (o *OIDC) renewed(ctx context.Context, got *oauth2.Token, subject string) (idpsync.Claims, error) {
	said := idpsync.Claims{Values: map[string]any{}, Partial: true}
	p, err := o.discover(ctx)
	if err != nil {
		return said, err
	}
	if raw, ok := got.Extra("id_token").(string); ok && raw != "" {
		values, id, err := o.verify(ctx, p, got, "") // it need not contain a nonce (OpenID Connect Core, 12.2)
		if err != nil {
			return said, err
		}
		if id.Subject != subject {
			return said, untrusted("renewed the sign-in of another user", "",
				errors.New("the subject of the ID token differs"))
		}
		said = idpsync.Claims{Values: values}
	}
	if o.cfg.IgnoreUserInfo || p.UserInfoEndpoint() == "" {
		return said, nil
	}
	return said, o.addUserInfo(ctx, p, got, subject, said.Values)
}

// verify returns the claims of the ID token. The token must be signed by the issuer, for this client, and with the
// nonce, if there is one.
func (o *OIDC) verify(
	ctx context.Context, p *oidc.Provider, got *oauth2.Token, nonce string,
) (map[string]any, *oidc.IDToken, error) {
	raw, ok := got.Extra("id_token").(string)
	if !ok || raw == "" {
		return nil, nil, untrusted("sent no ID token",
			"The operator must check that the client may use OpenID Connect, with the scope openid.", nil)
	}
	id, err := p.Verifier(&oidc.Config{ClientID: o.cfg.ClientID, Now: func() time.Time { return time.Now().Add(-clockSkew) }}).Verify(ctx, raw)
	if err != nil {
		return nil, nil, o.diagnose(raw, err)
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
		return nil, nil, untrusted("sent an ID token of another sign-in", "Sign in again.", errors.New("wrong nonce"))
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(got.AccessToken); err != nil {
			return nil, nil, untrusted("sent an ID token that does not belong to its access token", "Sign in again.",
				err)
		}
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, nil, untrusted("sent claims that cannot be read", "The operator must check the provider.", err)
	}
	if party, named := claims["azp"]; named && len(id.Audience) > 1 && party != o.cfg.ClientID {
		return nil, nil, untrusted("issued the ID token to another application",
			"The operator must check --oidc-client-id.", errors.New("wrong authorized party"))
	}
	return claims, id, nil
}

// diagnose returns the fault for an ID token that cannot be trusted. The token's claims are read only to say what is
// wrong.
func (o *OIDC) diagnose(raw string, err error) error {
	if _, ok := errors.AsType[*oidc.TokenExpiredError](err); ok {
		return untrusted("sent an ID token that has expired already", fmt.Sprintf("It is %s on this server. The operator must compare its clock with the provider's.", time.Now().UTC().Format(time.RFC3339)), err)
	}
	var claims struct {
		Issuer    string  `json:"iss"`
		Audience  any     `json:"aud"`
		NotBefore float64 `json:"nbf"`
	}
	if readErr := unverified(raw, &claims); readErr != nil {
		return untrusted("sent an ID token that cannot be read", "The operator must check the provider.",
			errors.Join(err, readErr))
	}
	audience, _ := claims.Audience.([]any)
	switch {
	case claims.Issuer != o.cfg.IssuerURL:
		return untrusted(fmt.Sprintf("sent an ID token of another issuer, %.200q", claims.Issuer),
			"The operator must check --oidc-issuer-url.", err)
	case claims.Audience != o.cfg.ClientID && !slices.Contains(audience, any(o.cfg.ClientID)):
		return untrusted("issued the ID token to another application", "The operator must check --oidc-client-id.", err)
	case claims.NotBefore > float64(time.Now().Unix()):
		return untrusted("sent an ID token that is not valid yet", fmt.Sprintf("It is %s on this server. The operator must compare its clock with the provider's.", time.Now().UTC().Format(time.RFC3339)), err)
	}
	return untrusted("sent an ID token with a wrong signature", "The operator must check the provider's keys.", err)
}

func untrusted(what, remedy string, cause error) error {
	f := fault.New(fault.Unauthenticated, "The identity provider %s.", what).WithDetail("%s", remedy)
	f.Cause = cause
	return f
}

// addUserInfo adds the claims of the user info endpoint, which win over those of the ID token.
func (o *OIDC) addUserInfo(
	ctx context.Context, p *oidc.Provider, got *oauth2.Token, subject string, claims map[string]any,
) error {
	info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(got))
	if err != nil {
		return untrusted("does not tell who signed in",
			"Try again in a moment. The operator can switch this question off with --oidc-ignore-userinfo.", err)
	}
	if info.Subject != subject {
		return untrusted("answered about another user", "Sign in again.",
			errors.New("the subject of the user info differs"))
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return untrusted("sent claims that cannot be read",
			"The operator can switch the question off with --oidc-ignore-userinfo.", err)
	}
	for _, name := range []string{"iss", "sub", "aud", "exp", "iat", "nonce"} { // of a signed answer, not of the user
		delete(more, name)
	}
	said, _ := claims[o.cfg.EmailField].(string) // textClaim refuses what is no text
	if address, named := more[o.cfg.EmailField].(string); named && address != said && more[emailVerified] == nil {
		delete(claims, emailVerified) // the ID token says it of another address
	}
	maps.Copy(claims, more)
	return nil
}

// identity reads the claims.
func (o *OIDC) identity(id *oidc.IDToken, said map[string]any, got *oauth2.Token) (identity, error) {
	who := identity{LoginType: sdk.LoginOIDC, Issuer: o.cfg.IssuerURL, Subject: id.Subject, Token: got, VouchedFor: o.cfg.IgnoreEmailVerified, Said: idpsync.Claims{Values: said}}
	if who.Subject == "" || len(who.Subject) > maxSubject {
		return who, badClaim("sub", fmt.Sprintf("must have 1 to %d characters", maxSubject))
	}
	var err error
	for _, field := range []struct {
		name string
		to   *string
	}{{o.cfg.EmailField, &who.Email}, {o.cfg.UsernameField, &who.Username}, {o.cfg.NameField, &who.Name}} {
		if *field.to, err = textClaim(said, field.name); err != nil {
			return who, err
		}
	}
	if who.Verified, err = verifiedClaim(said); err != nil {
		return who, err
	}
	if who.Claims, err = keptClaims(said); err != nil {
		return who, err
	}
	return who, nil
}

// renew requests new tokens: the Renew of extauth.Provider.
func (o *OIDC) renew(ctx context.Context, refresh string) (*oauth2.Token, error) {
	p, err := o.discover(ctx)
	if err != nil {
		return nil, err
	}
	c := o.config(p)
	if o.prove == nil {
		return c.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
	}
	// The library adds parameters to the exchange of codes only. Parameters without a value count as omitted (RFC 6749,
	// 3.2).
	proof, err := o.prove.options(p.Endpoint().TokenURL)
	if err != nil {
		return nil, err
	}
	c.RedirectURL = ""
	got, err := c.Exchange(ctx, "", append(proof, oauth2.SetAuthURLParam("grant_type", "refresh_token"),
		oauth2.SetAuthURLParam("refresh_token", refresh))...)
	if err == nil && got.RefreshToken == "" {
		got.RefreshToken = refresh
	}
	return got, err
}

func (o *OIDC) policy() policy {
	return policy{
		GroupField: o.cfg.GroupField, Groups: o.cfg.AllowedGroups, Domains: o.cfg.EmailDomains,
		AllowSignups: o.cfg.AllowSignups, SignupsDisabledText: o.cfg.SignupsDisabledText,
	}
}

// unverified decodes the claims of a token without checking it.
func unverified(raw string, claims any) error {
	payload, err := payloadOf(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(payload, claims)
}
