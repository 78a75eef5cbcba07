package users_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestPresentation checks that what an operator sets arrives where users and their programs ask, also before they sign in, and that no
// request of an owner or a visitor changes it.
func TestPresentation(t *testing.T) {
	t.Parallel()
	links := []sdk.LinkConfig{{Name: "Ask <for> help", Target: "https://chat.example.com/help?a=b", Icon: "chat"}}
	a := newAPI(t, func(o *coderd.Options) {
		o.TermsOfServiceURL = "https://example.com/terms"
		o.Presentation = users.Presentation{
			DocsURL: "https://docs.example.com", SupportLinks: links, UpgradeMessage: "Ask the help desk.", HostnamePrefix: "coder-acme.", HostnameSuffix: "coder-acme",
			SSHOptions: map[string]string{"ServerAliveInterval": "30"},
		}
	})
	owner, visitor := a.first(), a.nobody()
	owner.want(200, "PUT", "appearance", map[string]any{"application_name": "Acme", "support_links": []sdk.LinkConfig{}, "docs_url": "https://evil.example.com"})
	look := call[sdk.Appearance](visitor, 200, "GET", "appearance", nil)
	if look.ApplicationName != "Acme" || look.DocsURL != "https://docs.example.com" || !reflect.DeepEqual([]sdk.LinkConfig(look.SupportLinks), links) {
		t.Errorf("appearance: %+v", look)
	}
	if info := call[sdk.BuildInfo](visitor, 200, "GET", "buildinfo", nil); info.UpgradeMessage != "Ask the help desk." {
		t.Errorf("buildinfo: %+v", info)
	}
	if methods := call[sdk.AuthMethods](visitor, 200, "GET", "users/authmethods", nil); methods.TermsOfServiceURL != "https://example.com/terms" {
		t.Errorf("authmethods: %+v", methods)
	}
	visitor.want(401, "GET", "deployment/ssh", nil)
	ssh := call[sdk.SSHConfig](owner.add("ann"), 200, "GET", "deployment/ssh", nil)
	if ssh.HostnamePrefix != "coder-acme." || ssh.HostnameSuffix != "coder-acme" || ssh.SSHConfigOptions["ServerAliveInterval"] != "30" {
		t.Errorf("deployment/ssh: %+v", ssh)
	}
}

func TestPresentationIsChecked(t *testing.T) {
	t.Parallel()
	link := func(name, target, icon string) users.Presentation {
		return users.Presentation{SupportLinks: []sdk.LinkConfig{{Name: name, Target: target, Icon: icon}}}
	}
	for name, good := range map[string]users.Presentation{
		"nothing": {}, "docs": {DocsURL: "http://docs.example.com/x"}, "mail": link("Mail", "mailto:help@example.com", ""), "icon": link("Bugs", "https://bugs.example.com", "/icon/docker.svg"),
		"ssh": {HostnamePrefix: "coder-", HostnameSuffix: "coder-acme", SSHOptions: map[string]string{"SetEnv": "LANG=C.UTF-8"}},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]users.Presentation{
		"docs": {DocsURL: "docs.example.com"}, "docs with a password": {DocsURL: "https://a:b@docs.example.com"}, "script": link("Help", "javascript:alert(1)", ""),
		"data": link("Help", "data:text/html,x", ""), "no target": link("Help", "", ""), "no name": link("", "https://example.com", ""), "two lines": link("a\nb", "https://example.com", ""),
		"disguised": link("moc\u202e", "https://example.com", ""), "icon elsewhere": link("Help", "https://example.com", "https://evil.example.com/x.png"),
		"icon of no scheme": link("Help", "https://example.com", "//evil.example.com/x.png"), "many": {SupportLinks: make([]sdk.LinkConfig, 11)},
		"long message": {UpgradeMessage: strings.Repeat("x", 501)}, "escape": {UpgradeMessage: "\x1b[2J"}, "suffix": {HostnameSuffix: "com"}, "prefix": {HostnamePrefix: "g"},
		"program": {SSHOptions: map[string]string{"ProxyCommand": "sh"}}, "line": {SSHOptions: map[string]string{"SetEnv": "A=b\nProxyCommand sh"}},
	} {
		if err := bad.Check(); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := users.CheckTermsURL("javascript:alert(1)"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("terms: %v", err)
	}
	for _, text := range []string{`{}`, `[{"name":"a","href":"b"}]`, `[] []`, `[`, `"x"`} {
		if _, err := users.ParseSupportLinks(text); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("links %s: %v", text, err)
		}
	}
	if links, err := users.ParseSupportLinks(`[{"name":"a","target":"https://example.com"}]`); err != nil || len(links) != 1 || links[0].Target != "https://example.com" {
		t.Errorf("links: %v, %v", links, err)
	}
}
