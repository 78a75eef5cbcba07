package extauth_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// env returns the configuration of one provider, number 0.
func env(pairs ...string) []string {
	out := []string{"PATH=/bin", "CODER_EXTERNAL_AUTH_ACCESS_TOKEN_github=x"}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, "CODER_EXTERNAL_AUTH_0_"+pairs[i]+"="+pairs[i+1])
	}
	return out
}

func TestParseEnv(t *testing.T) {
	t.Parallel()
	client := []string{"CLIENT_ID", "id", "CLIENT_SECRET", "secret"}
	for _, tc := range []struct {
		name                               string
		pairs                              []string
		id, display, auth, token, validate string
	}{
		{"github", []string{"TYPE", "github"}, "github", "GitHub", "https://github.com/login/oauth/authorize", "https://github.com/login/oauth/access_token", "https://api.github.com/user"},
		{"gitlab", []string{"TYPE", "gitlab", "ID", "gl-1"}, "gl-1", "GitLab", "https://gitlab.com/oauth/authorize", "https://gitlab.com/oauth/token", "https://gitlab.com/oauth/token/info"},
		{"bitbucket", []string{"TYPE", "bitbucket-cloud"}, "bitbucket-cloud", "Bitbucket", "https://bitbucket.org/site/oauth2/authorize", "https://bitbucket.org/site/oauth2/access_token", "https://api.bitbucket.org/2.0/user"},
		{"gitea", []string{"TYPE", "gitea", "DISPLAY_NAME", "Tea"}, "gitea", "Tea", "https://gitea.com/login/oauth/authorize", "https://gitea.com/login/oauth/access_token", "https://gitea.com/login/oauth/userinfo"},
		{"a GitHub of one's own", []string{"TYPE", "github", "AUTH_URL", "https://git.corp/login/oauth/authorize"}, "github", "GitHub", "https://git.corp/login/oauth/authorize", "https://git.corp/login/oauth/access_token", "https://git.corp/api/v3/user"},
		{"a GitHub in a folder", []string{"TYPE", "github-enterprise", "AUTH_URL", "https://corp/git/login/oauth/authorize"}, "github-enterprise", "GitHub Enterprise", "https://corp/git/login/oauth/authorize", "https://corp/git/login/oauth/access_token", "https://corp/git/api/v3/user"},
		{"a Bitbucket of one's own", []string{"TYPE", "bitbucket-server", "AUTH_URL", "https://Bb.corp/rest/oauth2/latest/authorize"}, "bitbucket-server", "Bitbucket", "https://Bb.corp/rest/oauth2/latest/authorize", "https://Bb.corp/rest/oauth2/latest/token", "https://Bb.corp/rest/api/latest/profile/recent/repos?limit=1"},
		{"an address alone", []string{"TYPE", "bitbucket-server", "AUTH_URL", "https://bb.corp:7990/"}, "bitbucket-server", "Bitbucket", "https://bb.corp:7990/rest/oauth2/latest/authorize", "https://bb.corp:7990/rest/oauth2/latest/token", "https://bb.corp:7990/rest/api/latest/profile/recent/repos?limit=1"},
		{"another sign-in page", []string{"TYPE", "gitlab", "AUTH_URL", "https://g.corp/sso"}, "gitlab", "GitLab", "https://g.corp/sso", "https://g.corp/oauth/token", "https://g.corp/oauth/token/info"},
		{"another service", []string{"TYPE", "forge", "AUTH_URL", "https://f/a", "TOKEN_URL", "https://f/t"}, "forge", "forge", "https://f/a", "https://f/t", ""},
	} {
		got, err := extauth.ParseEnv(env(append(tc.pairs, client...)...))
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		p := got[0]
		if p.ID != tc.id || p.DisplayName != tc.display || p.AuthURL != tc.auth || p.TokenURL != tc.token || p.ValidateURL != tc.validate || p.Match == nil {
			t.Errorf("%s: got %+v", tc.name, p)
		}
	}
	none, err := extauth.ParseEnv(env("TYPE", "", "REGEX", ""))
	if err != nil || len(none) != 0 {
		t.Errorf("nothing configured: %v, %v", none, err)
	}
	two, err := extauth.ParseEnv(append(env("TYPE", "github", "CLIENT_ID", "id", "CLIENT_SECRET", "s", "SCOPES", "repo read:org"),
		"CODER_EXTERNAL_AUTH_10_TYPE=gitlab", "CODER_EXTERNAL_AUTH_10_CLIENT_ID=id", "CODER_EXTERNAL_AUTH_10_CLIENT_SECRET=s", "CODER_EXTERNAL_AUTH_10_NO_REFRESH=true"))
	if err != nil || len(two) != 2 || two[0].ID != "github" || len(two[0].Scopes) != 2 || !two[1].NoRefresh {
		t.Errorf("two: %+v, %v", two, err)
	}
}

// TestRevokeURLs checks where tokens are revoked when users unlink.
func TestRevokeURLs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"TYPE", "github"}, "https://api.github.com/applications/id%2F1/token"},
		{[]string{"TYPE", "github", "AUTH_URL", "https://git.corp"}, "https://git.corp/api/v3/applications/id%2F1/token"},
		{[]string{"TYPE", "github-enterprise", "AUTH_URL", "https://git.corp"}, "https://git.corp/api/v3/applications/id%2F1/token"},
		{[]string{"TYPE", "gitlab"}, "https://gitlab.com/oauth/revoke"},
		{[]string{"TYPE", "gitlab", "AUTH_URL", "https://git.corp/lab/oauth/authorize"}, "https://git.corp/lab/oauth/revoke"},
		{[]string{"TYPE", "bitbucket-server", "AUTH_URL", "https://bb.corp"}, "https://bb.corp/rest/oauth2/latest/revoke"},
		{[]string{"TYPE", "bitbucket-cloud"}, ""},
		{[]string{"TYPE", "gitea"}, ""},
		{[]string{"TYPE", "gitea", "REVOKE_URL", "https://f/r"}, "https://f/r"},
		{[]string{"TYPE", "forge", "AUTH_URL", "https://f/a", "TOKEN_URL", "https://f/t"}, ""},
	} {
		got, err := extauth.ParseEnv(env(append(tc.pairs, "CLIENT_ID", "id/1", "CLIENT_SECRET", "secret")...))
		if err != nil || got[0].RevokeURL != tc.want {
			t.Errorf("%q: got %+v, %v, want %s", tc.pairs, got, err, tc.want)
		}
	}
}

// TestDeviceURLs checks where codes of the device flow are requested, and that it needs neither a client secret nor a sign-in page.
func TestDeviceURLs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pairs               []string
		want, revoke, match string
	}{
		{[]string{"TYPE", "github"}, "https://github.com/login/device/code", "", "https://github.com/a/b"},
		{[]string{"TYPE", "github-enterprise", "AUTH_URL", "https://git.corp"}, "https://git.corp/login/device/code", "", "https://git.corp/a"},
		{[]string{"TYPE", "gitlab", "AUTH_URL", "https://git.corp"}, "https://git.corp/oauth/authorize_device", "https://git.corp/oauth/revoke", "https://git.corp/a"},
		{[]string{"TYPE", "forge", "DEVICE_CODE_URL", "https://f/d", "TOKEN_URL", "https://f/t"}, "https://f/d", "", "https://f/a"},
		{[]string{"TYPE", "gitea", "DEVICE_CODE_URL", "https://gitea.com/d"}, "https://gitea.com/d", "", "https://gitea.com/a"},
	} {
		got, err := extauth.ParseEnv(env(append(tc.pairs, "CLIENT_ID", "id", "DEVICE_FLOW", "true")...))
		if err != nil || got[0].DeviceURL != tc.want || !got[0].Device || got[0].RevokeURL != tc.revoke || !got[0].Matches(tc.match) {
			t.Errorf("%q: got %+v, %v, want %s", tc.pairs, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"TYPE", "gitea", "DEVICE_FLOW", "true"}, "0_DEVICE_CODE_URL"},
		{[]string{"TYPE", "forge", "DEVICE_FLOW", "true", "TOKEN_URL", "https://f/t"}, "0_DEVICE_CODE_URL"},
		{[]string{"TYPE", "forge", "DEVICE_FLOW", "true", "DEVICE_CODE_URL", "https://f/d"}, "0_TOKEN_URL"},
		{[]string{"TYPE", "forge", "DEVICE_FLOW", "true", "DEVICE_CODE_URL", "ftp://f/d", "TOKEN_URL", "https://f/t"}, "0_DEVICE_CODE_URL"},
		{[]string{"TYPE", "github", "DEVICE_FLOW", "perhaps"}, "0_DEVICE_FLOW"},
		{[]string{"TYPE", "github", "CLIENT_SECRET", "s", "DEVICE_CODE_URL", "https://github.com/d"}, "0_DEVICE_FLOW=true"},
		{[]string{"TYPE", "github", "DEVICE_FLOW", "false"}, "0_CLIENT_SECRET"},
	} {
		_, err := extauth.ParseEnv(env(append(tc.pairs, "CLIENT_ID", "id")...))
		if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want a fault that names %s", tc.pairs, err, tc.want)
		}
	}
}

// TestParseEnvRefuses checks that an invalid configuration is refused with the variable's name, and never with a secret.
func TestParseEnvRefuses(t *testing.T) {
	t.Parallel()
	good := map[string]string{"TYPE": "forge", "CLIENT_ID": "id", "CLIENT_SECRET": "hush-hush", "AUTH_URL": "https://f/a", "TOKEN_URL": "https://f/t"}
	for _, tc := range []struct{ name, setting, value, want string }{
		{"no type", "TYPE", "", "0_TYPE"},
		{"no client", "CLIENT_ID", "", "0_CLIENT_ID"},
		{"no secret", "CLIENT_SECRET", "", "0_CLIENT_SECRET"},
		{"no URL", "AUTH_URL", "", "0_AUTH_URL"},
		{"no token URL", "TOKEN_URL", "", "0_TOKEN_URL"},
		{"a bad URL", "TOKEN_URL", "f/t", "0_TOKEN_URL"},
		{"a bad revocation URL", "REVOKE_URL", "ftp://f", "0_REVOKE_URL"},
		{"a URL with a password", "VALIDATE_URL", "https://u:p@f", "0_VALIDATE_URL"},
		{"a bad expression", "REGEX", "(", "0_REGEX"},
		{"a bad id", "ID", "a b", "0_ID"},
		{"an id that is a path", "ID", "../x", "0_ID"},
		{"a secret as an extra property", "EXTRA_TOKEN_KEYS", "authed_user refresh_token", "0_EXTRA_TOKEN_KEYS"},
		{"a bad truth", "NO_REFRESH", "perhaps", "0_NO_REFRESH"},
		{"a typing error", "CLIENTSECRET", "hush-hush", "0_CLIENTSECRET"},
		{"too long", "SCOPES", strings.Repeat("a", 5000), "0_SCOPES"},
	} {
		var pairs []string
		for name, value := range good {
			if name != tc.setting {
				pairs = append(pairs, name, value)
			}
		}
		_, err := extauth.ParseEnv(env(append(pairs, tc.setting, tc.value)...))
		if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want a fault that names %s", tc.name, err, tc.want)
		}
	}
	_, err := extauth.ParseEnv(append(env("TYPE", "github", "CLIENT_ID", "id", "CLIENT_SECRET", "s"),
		"CODER_EXTERNAL_AUTH_1_TYPE=github", "CODER_EXTERNAL_AUTH_1_CLIENT_ID=id", "CODER_EXTERNAL_AUTH_1_CLIENT_SECRET=s"))
	if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "1_ID") {
		t.Errorf("two with one name: %v", err)
	}
	_, err = extauth.ParseEnv(env("TYPE", "bitbucket-server", "CLIENT_ID", "id", "CLIENT_SECRET", "s"))
	if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "0_AUTH_URL") {
		t.Errorf("a type without a public service: %v", err)
	}
}

// TestMatches checks which servers receive a token.
func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pairs []string
		yes   []string
		no    []string
	}{
		{
			[]string{"TYPE", "github"},
			[]string{"https://github.com", "https://github.com/", "https://github.com/a/b.git", "https://GitHub.com/a", "https://x@github.com/a", "HTTPS://github.com"},
			[]string{
				"https://github.com.evil.example", "https://evil.example/github.com", "https://evil.example/https://github.com", "https://github.com@evil.example",
				"https://evilgithub.com", "http://github.com", "https://github.com:8443", "ssh://github.com", "github.com", "", "https://", "https:github.com",
				"https://evil.example?https://github.com", "https://evil.example#github.com", "https://github.com%2f@evil.example", "https://github.com\x00.evil.example",
				"https://gist.github.com", "https://github.com/" + strings.Repeat("a", 3000),
			},
		},
		{
			[]string{"TYPE", "github", "REGEX", `github\.com/our`},
			[]string{"https://github.com/our", "https://github.com/our/b.git"},
			[]string{"https://github.com", "https://github.com/ours", "http://github.com/our", "https://evil.example/github.com/our"},
		},
		{
			[]string{"TYPE", "gitlab", "REGEX", `^(https?://)?gitlab\.(com|corp)(/.*)?$`},
			[]string{"https://gitlab.com/x", "http://gitlab.corp/x", "https://gitlab.corp"},
			[]string{"https://gitlab.company", "https://gitlab.com.evil.example"},
		},
		{
			[]string{"TYPE", "gitea", "AUTH_URL", "http://127.0.0.1:3001/login/oauth/authorize"},
			[]string{"http://127.0.0.1:3001/a"},
			[]string{"https://gitea.com", "http://127.0.0.1:3002/a", "https://127.0.0.1:3001/a", "http://127.0.0.1/a"},
		},
		{[]string{"TYPE", "gitlab", "REGEX", `https://`}, nil, []string{"https://gitlab.com/x", "https://evil.example"}},
	} {
		got, err := extauth.ParseEnv(env(append(tc.pairs, "CLIENT_ID", "id", "CLIENT_SECRET", "s")...))
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range tc.yes {
			if !got[0].Matches(u) {
				t.Errorf("%v is not for %q", tc.pairs, u)
			}
		}
		for _, u := range tc.no {
			if got[0].Matches(u) {
				t.Errorf("%v is for %q", tc.pairs, u)
			}
		}
	}
}

// FuzzMatches checks that for every URL, GitHub's token is used only for GitHub's host, with TLS.
func FuzzMatches(f *testing.F) {
	providers, err := extauth.ParseEnv(env("TYPE", "github", "CLIENT_ID", "id", "CLIENT_SECRET", "s", "REGEX", `github\.com`))
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"https://github.com/a", "https://github.com@evil", "http://github.com", "https://github.com%2f@evil", "//github.com", "https://github.com\\@evil"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !providers[0].Matches(text) {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || !strings.EqualFold(u.Host, "github.com") {
			t.Errorf("%q is taken for GitHub's: %v", text, u)
		}
	})
}
