package extauth

import (
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/internal/secret"
)

// Provider is one service that users link accounts of, as the operator has configured it.
type Provider struct {
	ID           string // names it in URLs, templates and the environment of builds
	Type         string // of kinds, or any word
	ClientID     string
	ClientSecret secret.Token
	DisplayName  string
	DisplayIcon  string
	AuthURL      string
	TokenURL     string
	ValidateURL  string         // asked with the token, to know whether it is good; "" for none
	Match        *regexp.Regexp // which URLs the token is for, by matches; nil for none
	Scopes       []string
	NoRefresh    bool
}

// kind is what is known about a type of provider. Paths are those of its own hosts and of hosts of one's own, but for validate.
type kind struct {
	name              string
	origin            string // of the public service
	auth, token       string // paths
	validate          string // URL of the public service
	validateElsewhere string // path on a host of one's own
	scopes            []string
	username          string // beside the token, in HTTP's basic authentication
	style             oauth2.AuthStyle
	publicOnly        bool // cannot be run on a host of one's own
}

// Sources: each provider's own documentation of OAuth applications and of cloning over HTTPS with a token.
var kinds = map[string]kind{
	"github": {
		name: "GitHub", origin: "https://github.com", auth: "/login/oauth/authorize", token: "/login/oauth/access_token",
		validate: "https://api.github.com/user", validateElsewhere: "/api/v3/user", scopes: []string{"repo", "workflow"},
		username: "x-access-token", style: oauth2.AuthStyleInParams,
	},
	"gitlab": {
		name: "GitLab", origin: "https://gitlab.com", auth: "/oauth/authorize", token: "/oauth/token",
		validate: "https://gitlab.com/oauth/token/info", validateElsewhere: "/oauth/token/info", scopes: []string{"write_repository", "read_user"},
		username: "oauth2", style: oauth2.AuthStyleInParams,
	},
	"bitbucket-cloud": {
		name: "Bitbucket", origin: "https://bitbucket.org", auth: "/site/oauth2/authorize", token: "/site/oauth2/access_token",
		validate: "https://api.bitbucket.org/2.0/user", scopes: []string{"account", "repository:write"},
		username: "x-token-auth", style: oauth2.AuthStyleInHeader, publicOnly: true,
	},
	"gitea": {
		name: "Gitea", origin: "https://gitea.com", auth: "/login/oauth/authorize", token: "/login/oauth/access_token",
		validate: "https://gitea.com/login/oauth/userinfo", validateElsewhere: "/login/oauth/userinfo",
		username: "oauth2", style: oauth2.AuthStyleInParams,
	},
}

// username is what git says beside the token. Services that are not known take any name: the token decides.
func (p *Provider) username() string {
	if kind, ok := kinds[p.Type]; ok {
		return kind.username
	}
	return "oauth2"
}

// maxURL bounds what is matched, in bytes.
const maxURL = 2048

// Matches reports whether the provider's token may be shown to the server at a URL. Operators write "github\.com" and mean the
// host: so a match begins where the URL or its host does, and ends where a part of it ends. "github.com.example.org" is somebody
// else. An expression that leaves the scheme out means HTTPS: a token is not sent in plain unless the operator has said "http".
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

// wholeParts reports whether the expression, which compileMatch has anchored, matches text up to the end of one of its parts.
func wholeParts(re *regexp.Regexp, text string) bool {
	at := re.FindStringIndex(text)
	if at == nil {
		return false
	}
	begin := strings.Index(text, "://") + len("://") // of the host
	if !strings.Contains(text, "://") {
		begin = 0
	}
	end := at[1]
	return end > begin && (end == len(text) || text[end] == '/' || text[end-1] == '/')
}

// compileMatch makes an expression match at the beginning only, and as much as it can.
func compileMatch(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile("^(?:" + text + ")")
	if err != nil {
		return nil, err
	}
	re.Longest()
	return re, nil
}
