package extauth

import (
	"context"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Provider is a service at which users can link accounts, as configured by the operator.
type Provider struct {
	ID           string // names it in URLs, templates and the environment of builds
	Type         string // a key of kinds, or any other word
	ClientID     string
	ClientSecret secret.Token
	DisplayName  string
	DisplayIcon  string
	AuthURL      string
	TokenURL     string
	ValidateURL  string         // asked with the token whether it is valid; "" for none
	RevokeURL    string         // revokes tokens when a user unlinks; "" for none
	Match        *regexp.Regexp // matches the URLs that the token is for; nil for none
	Scopes       []string
	ExtraKeys    []string // of the service's answers with tokens, kept for programs of workspaces
	NoRefresh    bool
	Device       bool   // users enter a code at the service (RFC 8628) instead of being redirected
	DeviceURL    string // issues the codes; "" without Device
	InstallURL   string // the page where users install the provider's app, such as a GitHub App; "" for none
	// InstallationsURL is asked with the token where the app is installed, in GitHub's form; "" for none.
	InstallationsURL string
	// Renew, for a provider in Options.SignIn, requests new tokens with a refresh token, within the context's deadline.
	Renew func(ctx context.Context, refresh string) (*oauth2.Token, error)
}

// kind describes a type of provider. Paths are the same on its public hosts and on self-hosted ones, except for
// validate.
type kind struct {
	name              string
	origin            string // of the public service; "" for a type that has none
	auth, token       string // paths
	device            string // path of the device flow's codes; "" if the type has none
	validate          string // URL of the public service
	validateElsewhere string // path on a self-hosted server
	revoke            string // as validate; CLIENT_ID stands for the client's
	revokeElsewhere   string // as validateElsewhere
	installations     string // as validate
	scopes            []string
	username          string // used with the token in HTTP basic authentication
	style             oauth2.AuthStyle
	// installationsElsewhere is as validateElsewhere.
	installationsElsewhere string
	publicOnly             bool // cannot be self-hosted
	ownAPI                 bool // revokes by GitHub's API, not by RFC 7009
}

// Sources: each provider's own documentation of OAuth applications and of cloning over HTTPS with a token.
var kinds = map[string]kind{
	"github": {
		name: "GitHub", origin: "https://github.com", auth: "/login/oauth/authorize", token: "/login/oauth/access_token", device: "/login/device/code",
		validate: "https://api.github.com/user", validateElsewhere: "/api/v3/user", scopes: []string{"repo", "workflow"},
		username: "x-access-token", style: oauth2.AuthStyleInParams, ownAPI: true,
		revoke:          "https://api.github.com/applications/CLIENT_ID/token",
		revokeElsewhere: "/api/v3/applications/CLIENT_ID/token",
		installations:   "https://api.github.com/user/installations", installationsElsewhere: "/api/v3/user/installations",
	},
	"gitlab": {
		name: "GitLab", origin: "https://gitlab.com", auth: "/oauth/authorize", token: "/oauth/token", device: "/oauth/authorize_device",
		validate: "https://gitlab.com/oauth/token/info", validateElsewhere: "/oauth/token/info", scopes: []string{"write_repository", "read_user"},
		revoke: "https://gitlab.com/oauth/revoke", revokeElsewhere: "/oauth/revoke",
		username: "oauth2", style: oauth2.AuthStyleInParams,
	},
	"bitbucket-cloud": {
		name: "Bitbucket", origin: "https://bitbucket.org", auth: "/site/oauth2/authorize", token: "/site/oauth2/access_token",
		validate: "https://api.bitbucket.org/2.0/user", scopes: []string{"account", "repository:write"},
		username: "x-token-auth", style: oauth2.AuthStyleInHeader, publicOnly: true,
	},
	"bitbucket-server": { // and Data Center, 7.21 or newer
		name: "Bitbucket", auth: "/rest/oauth2/latest/authorize", token: "/rest/oauth2/latest/token",
		validateElsewhere: "/rest/api/latest/profile/recent/repos?limit=1",
		revokeElsewhere:   "/rest/oauth2/latest/revoke",
		scopes:            []string{"PUBLIC_REPOS", "REPO_READ", "REPO_WRITE"},
		username:          "x-token-auth", style: oauth2.AuthStyleInParams,
	},
	"github-enterprise": {
		name: "GitHub Enterprise", auth: "/login/oauth/authorize", token: "/login/oauth/access_token", device: "/login/device/code",
		validateElsewhere: "/api/v3/user", revokeElsewhere: "/api/v3/applications/CLIENT_ID/token",
		installationsElsewhere: "/api/v3/user/installations",
		scopes:                 []string{"repo", "workflow"},
		username:               "x-access-token", style: oauth2.AuthStyleInParams, ownAPI: true,
	},
	"gitea": {
		name: "Gitea", origin: "https://gitea.com", auth: "/login/oauth/authorize", token: "/login/oauth/access_token",
		validate: "https://gitea.com/login/oauth/userinfo", validateElsewhere: "/login/oauth/userinfo",
		username: "oauth2", style: oauth2.AuthStyleInParams,
	},
}

// username returns the username that git sends with the token. Unknown services accept any name: only the token
// matters.
func (p *Provider) username() string {
	if kind, ok := kinds[p.Type]; ok {
		return kind.username
	}
	return "oauth2"
}

// maxURL bounds the URLs that are matched, in bytes.
const maxURL = 2048

// Matches reports whether the provider's token may be sent to the server at a URL. Operators write "github\.com" and
// mean the host, so a match begins where the URL or its host does, and ends where a part of it ends:
// "github.com.example.org" is a different host. An expression without a scheme means HTTPS: a token is not sent
// unencrypted unless the operator wrote "http".
func (p *Provider) Matches(text string) bool {
	if p.Match == nil || len(text) > maxURL {
		return false
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return false
	}
	scheme, rest := strings.ToLower(u.Scheme), strings.ToLower(u.Host)+u.EscapedPath()
	switch scheme {
	case "https":
		return wholeParts(p.Match, scheme+"://"+rest) || wholeParts(p.Match, rest)
	case "http":
		return wholeParts(p.Match, scheme+"://"+rest)
	}
	return false
}

// wholeParts reports whether the expression, which compileMatch has anchored, matches text up to the end of one of its
// parts.
func wholeParts(re *regexp.Regexp, text string) bool {
	at := re.FindStringIndex(text)
	if at == nil {
		return false
	}
	begin := strings.Index(text, "://") + len("://") // start of the host
	if !strings.Contains(text, "://") {
		begin = 0
	}
	end := at[1]
	return end > begin && (end == len(text) || text[end] == '/' || text[end-1] == '/')
}

// compileMatch compiles an expression so that it matches only at the beginning, and prefers the longest match.
func compileMatch(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile("^(?:" + text + ")")
	if err != nil {
		return nil, err
	}
	re.Longest()
	return re, nil
}
