package main

import (
	"encoding/json"
	"net/url"
	"os"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// signInOptions are the flags of `coder server` that say how users sign in.
type signInOptions struct {
	oidc          signin.OIDCConfig
	oidcSecret    string
	oidcKeyFile   string
	oidcCertFile  string
	oidcURLParams string
	sync          syncOptions

	github       signin.GitHubConfig
	githubSecret string

	disablePasswords bool
}

func (o *signInOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.disablePasswords, "disable-password-auth", false,
		"refuse passwords of users who are not owners; owners keep theirs in case the identity provider fails")

	c := &o.oidc
	f.StringVar(&c.IssuerURL, "oidc-issuer-url", "", "URL of an OpenID Connect provider that users sign in at")
	f.StringVar(&c.ClientID, "oidc-client-id", "", "client ID of this server at the OpenID Connect provider")
	f.StringVar(&o.oidcSecret, "oidc-client-secret", "",
		"client secret of this server at the OpenID Connect provider (prefer the environment variable)")
	f.StringVar(&o.oidcKeyFile, "oidc-client-key-file", "", "PEM file with an RSA key that proves this server's identity to the provider instead of a secret; requires --oidc-client-cert-file")
	f.StringVar(&o.oidcCertFile, "oidc-client-cert-file", "", "PEM file with the certificate of --oidc-client-key-file")
	f.StringSliceVar(&c.Scopes, "oidc-scopes", []string{"openid", "profile", "email"},
		"scopes to request; many providers issue refresh tokens for offline_access only")
	f.StringSliceVar(&c.EmailDomains, "oidc-email-domain", nil,
		"domains of email addresses that may sign in (default all)")
	f.StringVar(&c.EmailField, "oidc-email-field", "email", "claim with the email address")
	f.StringVar(&c.UsernameField, "oidc-username-field", "preferred_username",
		"claim with the username of new accounts")
	f.StringVar(&c.NameField, "oidc-name-field", "name", "claim with the full name")
	f.BoolVar(&c.IgnoreEmailVerified, "oidc-ignore-email-verified", false,
		"trust email addresses that the provider does not call verified")
	f.BoolVar(&c.IgnoreUserInfo, "oidc-ignore-userinfo", false,
		"read the claims of the ID token only, without a request to the provider's user info endpoint")
	f.StringVar(&o.oidcURLParams, "oidc-auth-url-params", `{"access_type": "offline"}`, "JSON object with further parameters for the provider's sign-in page")
	f.StringVar(&c.SignInText, "oidc-sign-in-text", "OpenID Connect", "text of the button on the sign-in page")
	f.StringVar(&c.IconURL, "oidc-icon-url", "", "path on this server of the icon on the button")
	f.BoolVar(&c.AllowSignups, "oidc-allow-signups", true, "create accounts for users who sign in for the first time")
	f.StringVar(&c.SignupsDisabledText, "oidc-signups-disabled-text", "",
		"text for users who have no account while --oidc-allow-signups is off")

	o.sync.flags(f, c)

	g := &o.github
	f.StringVar(&g.ClientID, "oauth2-github-client-id", "",
		"client ID of an OAuth application at GitHub that users sign in with")
	f.StringVar(&o.githubSecret, "oauth2-github-client-secret", "",
		"client secret of that application (prefer the environment variable)")
	f.StringSliceVar(&g.AllowedOrgs, "oauth2-github-allowed-orgs", nil,
		"GitHub organizations whose members may sign in")
	f.StringSliceVar(&g.AllowedTeams, "oauth2-github-allowed-teams", nil,
		"GitHub teams whose members may sign in, each as organization/team")
	f.BoolVar(&g.AllowEveryone, "oauth2-github-allow-everyone", false, "let every account of GitHub sign in")
	f.BoolVar(&g.AllowSignups, "oauth2-github-allow-signups", false,
		"create accounts for users who sign in with GitHub for the first time")
	f.BoolVar(&g.DeviceFlow, "oauth2-github-device-flow", false,
		"let users enter a code at GitHub instead of redirecting them")
	f.StringVar(&g.EnterpriseBaseURL, "oauth2-github-enterprise-base-url", "",
		"URL of a GitHub Enterprise server (default github.com)")
}

// providers returns the configured identity providers, nil for those that are not.
func (o *signInOptions) providers(accessURL *url.URL) (*signin.OIDC, *signin.GitHub, error) {
	var oidc *signin.OIDC
	var github *signin.GitHub
	if o.oidc.IssuerURL != "" {
		if err := o.readOIDC(); err != nil {
			return nil, nil, err
		}
		var err error
		if oidc, err = signin.NewOIDC(o.oidc, accessURL); err != nil {
			return nil, nil, err
		}
	} else if o.oidc.ClientID != "" || o.oidcSecret != "" {
		return nil, nil, fault.New(fault.Invalid, "--oidc-issuer-url is missing").
			WithDetail("It looks like https://login.example.com/realms/company.")
	}
	if o.github.ClientID != "" || o.githubSecret != "" {
		o.github.ClientSecret = secret.Token(o.githubSecret)
		var err error
		if github, err = signin.NewGitHub(o.github, accessURL); err != nil {
			return nil, nil, err
		}
	}
	return oidc, github, nil
}

func (o *signInOptions) readOIDC() error {
	o.oidc.ClientSecret = secret.Token(o.oidcSecret)
	for _, file := range []struct {
		flag, path string
		to         *[]byte
	}{{"--oidc-client-key-file", o.oidcKeyFile, &o.oidc.ClientKey}, {"--oidc-client-cert-file", o.oidcCertFile, &o.oidc.ClientCert}} {
		if file.path == "" {
			continue
		}
		text, err := os.ReadFile(file.path)
		if err != nil {
			return fault.New(fault.Invalid, "%s cannot be read: %w", file.flag, err)
		}
		*file.to = text
	}
	if o.oidcURLParams == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(o.oidcURLParams), &o.oidc.AuthURLParams); err != nil {
		return fault.New(fault.Invalid, "--oidc-auth-url-params must be a JSON object whose values are text: %w", err).WithDetail(`It looks like {"access_type": "offline"}.`)
	}
	return nil
}
