package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// GitHubConfig is GitHub, or a GitHub Enterprise server, as configured by the operator.
type GitHubConfig struct {
	ClientID     string
	ClientSecret secret.Token
	// AllowedOrgs and AllowedTeams ("organization/team") name whose members may sign in. With both, a user must be a
	// member of one of each. AllowEveryone admits every account of the service instead.
	AllowedOrgs, AllowedTeams []string
	AllowEveryone             bool
	AllowSignups              bool
	DeviceFlow                bool
	// EnterpriseBaseURL is the URL of a GitHub Enterprise server; "" means github.com.
	EnterpriseBaseURL string
}

// maxOrganizations bounds the pages of organizations that are read, a hundred each.
const maxOrganizationPages = 10

// GitHub signs users in at GitHub, with its OAuth applications. Safe for concurrent use.
type GitHub struct {
	cfg    GitHubConfig
	base   string // of pages and tokens
	api    string
	oauth2 oauth2.Config
}

// NewGitHub returns a provider. It returns the fault Invalid if the configuration cannot work.
func NewGitHub(cfg GitHubConfig, accessURL *url.URL) (*GitHub, error) {
	limited := len(cfg.AllowedOrgs)+len(cfg.AllowedTeams) > 0
	switch {
	case cfg.ClientID == "":
		return nil, fault.New(fault.Invalid, "--oauth2-github-client-id is missing").
			WithDetail("GitHub shows it when you register an OAuth application there.")
	case cfg.ClientSecret == "" && !cfg.DeviceFlow:
		return nil, fault.New(fault.Invalid, "--oauth2-github-client-secret is missing").
			WithDetail("Set CODER_OAUTH2_GITHUB_CLIENT_SECRET.")
	case cfg.AllowEveryone && limited:
		return nil, fault.New(fault.Invalid, "--oauth2-github-allow-everyone cannot be combined with --oauth2-github-allowed-orgs or --oauth2-github-allowed-teams")
	case !cfg.AllowEveryone && !limited:
		return nil, fault.New(fault.Invalid, "GitHub sign-in admits nobody").
			WithDetail("Set --oauth2-github-allowed-orgs or --oauth2-github-allowed-teams, or --oauth2-github-allow-everyone for every account of GitHub.")
	}
	for _, team := range cfg.AllowedTeams {
		if org, name, ok := strings.Cut(team, "/"); !ok || org == "" || name == "" {
			return nil, fault.New(fault.Invalid, "--oauth2-github-allowed-teams cannot contain %q", team).
				WithDetail("A team looks like organization/team.")
		}
	}
	g := &GitHub{cfg: cfg, base: "https://github.com", api: "https://api.github.com"}
	if cfg.EnterpriseBaseURL != "" {
		u, err := url.Parse(cfg.EnterpriseBaseURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fault.New(fault.Invalid, "--oauth2-github-enterprise-base-url %q must start with http:// or https://", cfg.EnterpriseBaseURL)
		}
		g.base = strings.TrimSuffix(u.String(), "/")
		g.api = g.base + "/api/v3"
	}
	g.oauth2 = oauth2.Config{
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret.Reveal(),
		Scopes:      []string{"read:user", "user:email", "read:org"},
		RedirectURL: accessURL.JoinPath("api/v2/users/oauth2/github/callback").String(),
		Endpoint: oauth2.Endpoint{
			AuthURL: g.base + "/login/oauth/authorize", TokenURL: g.base + "/login/oauth/access_token",
			DeviceAuthURL: g.base + "/login/device/code",
			AuthStyle:     oauth2.AuthStyleInParams,
		},
	}
	return g, nil
}

func (g *GitHub) pageURL(_ context.Context, state, verifier string) (string, error) {
	return g.oauth2.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier)), nil
}

func (g *GitHub) policy() policy { return policy{AllowSignups: g.cfg.AllowSignups} }

func (g *GitHub) renew(ctx context.Context, refresh string) (*oauth2.Token, error) {
	return g.oauth2.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
}

func (g *GitHub) identify(ctx context.Context, code, verifier string) (identity, error) {
	got, err := g.oauth2.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return identity{}, refusedCode(err)
	}
	return g.describe(ctx, got)
}

// githubUser and githubEmail are what GitHub's API tells of the user of a token.
type githubUser struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Name  string `json:"name"`
}

type githubEmail struct {
	Email    string `json:"email"`
	Primary  bool   `json:"primary"`
	Verified bool   `json:"verified"`
}

// describe asks GitHub who holds a token, and whether they may sign in here.
func (g *GitHub) describe(ctx context.Context, got *oauth2.Token) (identity, error) {
	var user githubUser
	if err := g.get(ctx, got, "/user", &user); err != nil {
		return identity{}, err
	}
	if user.ID == 0 || user.Login == "" {
		return identity{}, untrusted("does not tell who signed in", "Sign in again.",
			errors.New("user without id or login"))
	}
	if err := g.admit(ctx, got, user.Login); err != nil {
		return identity{}, err
	}
	var emails []githubEmail
	if err := g.get(ctx, got, "/user/emails", &emails); err != nil {
		return identity{}, err
	}
	who := identity{
		LoginType: sdk.LoginGitHub, Issuer: g.base, Subject: strconv.FormatInt(user.ID, 10), Username: user.Login,
		Name: user.Name, Token: got, Verified: unverifiedEmail,
	}
	if i := slices.IndexFunc(emails, func(e githubEmail) bool { return e.Primary }); i >= 0 {
		who.Email = emails[i].Email
		if emails[i].Verified {
			who.Verified = verifiedEmail
		}
	}
	var err error
	who.Claims, err = json.Marshal(user)
	return who, err
}

// admit returns a fault unless the user is a member of what the operator allows.
func (g *GitHub) admit(ctx context.Context, got *oauth2.Token, login string) error {
	if g.cfg.AllowEveryone {
		return nil
	}
	if len(g.cfg.AllowedOrgs) > 0 {
		member, err := g.inAllowedOrg(ctx, got)
		if err != nil {
			return err
		}
		if !member {
			return fault.New(fault.Forbidden, "You are not a member of an organization that may sign in here.").
				WithDetail("They are: %s. If you are a member, grant this application access to the organization at GitHub.", strings.Join(g.cfg.AllowedOrgs, ", "))
		}
	}
	for _, team := range g.cfg.AllowedTeams {
		org, slug, _ := strings.Cut(team, "/")
		var membership struct {
			State string `json:"state"`
		}
		err := g.get(ctx, got, "/orgs/"+url.PathEscape(org)+"/teams/"+url.PathEscape(slug)+"/memberships/"+url.PathEscape(login), &membership)
		if err == nil && membership.State == "active" {
			return nil
		}
		if err != nil && !errors.Is(err, errNotThere) {
			return err
		}
	}
	if len(g.cfg.AllowedTeams) > 0 {
		return fault.New(fault.Forbidden, "You are not a member of a team that may sign in here.").
			WithDetail("They are: %s.", strings.Join(g.cfg.AllowedTeams, ", "))
	}
	return nil
}

func (g *GitHub) inAllowedOrg(ctx context.Context, got *oauth2.Token) (bool, error) {
	const perPage = 100
	for page := 1; page <= maxOrganizationPages; page++ {
		var memberships []struct {
			State        string `json:"state"`
			Organization struct {
				Login string `json:"login"`
			} `json:"organization"`
		}
		if err := g.get(ctx, got, fmt.Sprintf("/user/memberships/orgs?state=active&per_page=%d&page=%d", perPage, page), &memberships); err != nil {
			return false, err
		}
		for _, m := range memberships {
			if m.State == "active" && slices.ContainsFunc(g.cfg.AllowedOrgs, func(org string) bool { return strings.EqualFold(org, m.Organization.Login) }) {
				return true, nil
			}
		}
		if len(memberships) < perPage {
			break
		}
	}
	return false, nil
}

// errNotThere reports that GitHub does not know something, or does not show it to the user.
var errNotThere = errors.New("GitHub has no such object")

// get asks GitHub's API as the holder of a token. Its faults tell the user what is wrong.
func (g *GitHub) get(ctx context.Context, got *oauth2.Token, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.api+path, nil)
	if err != nil {
		return fmt.Errorf("ask GitHub: %w", err)
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	resp, err := oauth2.NewClient(ctx, oauth2.StaticTokenSource(got)).Do(req)
	if err != nil {
		return fault.New(fault.Unavailable, "GitHub does not answer: %w", err).WithDetail("Try again in a moment.")
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return errNotThere
	case resp.StatusCode >= 300:
		return fault.New(fault.Unavailable, "GitHub did not tell who signed in: status %d.", resp.StatusCode).
			WithDetail("Try again in a moment. The operator must check the OAuth application's permissions.")
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return untrusted("sent an answer that cannot be read", "Try again in a moment.", err)
	}
	return nil
}
