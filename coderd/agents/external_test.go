package agents_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestExternalURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"javascript:alert(1)", "JavaScript:alert(1)", "java\tscript:alert(1)", "java\nscript:alert(1)", " javascript:alert(1)", "javascript:alert(1)\r",
		"\x01javascript:alert(1)", "data:text/html,<script>", "vbscript:x", "blob:https://x/y", "file:///etc/passwd", "view-source:https://x",
		"ssh://-oProxyCommand=reboot/", "ssh://-l@host", "ssh:-oProxyCommand=x", "java\u200bscript:alert(1)", "https://x/\x00", "\u2028javascript:x", "1nvalid:x", ":x",
	} {
		if agents.CheckExternalURL(bad) == "" {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{
		"", "https://example.com/a b?c=d", "http://localhost:8080", "vscode://coder.coder-remote/open?owner=a&token=$SESSION_TOKEN", "jetbrains-gateway://connect#type=coder",
		"cursor://x", "mailto:ops@example.com", "/@ada/dev/apps/code?x=javascript:1", "ssh://host", "web+thing:x", "docs/readme.html",
	} {
		if problem := agents.CheckExternalURL(good); problem != "" {
			t.Errorf("%q %s", good, problem)
		}
	}
	app := func(external bool, u string) []*provisionerpb.Resource {
		return []*provisionerpb.Resource{{Agents: []*provisionerpb.Agent{{Apps: []*provisionerpb.App{{Slug: "x", External: external, Url: u}}}}}}
	}
	if err := agents.CheckAddresses(app(true, "javascript:alert(1)"), "https://coder.example.com"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("an external app: %v", err)
	}
	if err := agents.CheckAddresses(app(true, "vscode://coder.coder-remote/open?url=https://evil.example&token=$SESSION_TOKEN"), "https://coder.example.com"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a token for another server: %v", err)
	}
	help := func(u string) []*provisionerpb.Resource {
		agent := &provisionerpb.Agent{Name: "main", TroubleshootingUrl: u}
		return []*provisionerpb.Resource{{Agents: []*provisionerpb.Agent{{Devcontainers: []*provisionerpb.Devcontainer{{Agent: agent}}}, agent}}}
	}
	if err := agents.CheckAddresses(help("javascript:alert(1)"), "https://coder.example.com"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a troubleshooting address: %v", err)
	}
	if err := agents.CheckAddresses(help("https://example.com/help"), "https://coder.example.com"); err != nil {
		t.Error(err)
	}
	for _, fine := range [][]*provisionerpb.Resource{app(false, "javascript:alert(1)"), app(true, "https://example.com"), nil} {
		if err := agents.CheckAddresses(fine, "https://coder.example.com"); err != nil {
			t.Error(err)
		}
	}
}

// TestAddressesAreKnown fails for a field with an address that is neither checked nor listed as one that people do not open.
func TestAddressesAreKnown(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"Agent.troubleshooting_url": true, "App.url": true, "App.healthcheck_url": true}
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := string(m.Name()) + "." + string(f.Name())
			if f.Message() != nil {
				walk(f.Message())
			} else if words := strings.Split(string(f.Name()), "_"); (slices.Contains(words, "url") || slices.Contains(words, "uri") || slices.Contains(words, "link") || slices.Contains(words, "href")) && !known[name] {
				t.Errorf("%s: say in CheckAddresses whether people open it", name)
			} else {
				delete(known, name)
			}
		}
	}
	walk((&provisionerpb.Resource{}).ProtoReflect().Descriptor())
	for name := range known {
		t.Errorf("%s does not exist", name)
	}
}

// FuzzExternalURL checks that accepted addresses have no scheme that a browser would run, however they are written.
func FuzzExternalURL(f *testing.F) {
	for _, seed := range []string{"javascript:x", "java\tscript:x", "https://x", "vscode://a", "/x", "data:,", "DATA:,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if agents.CheckExternalURL(text) != "" {
			return
		}
		// Following the URL standard: remove tabs and line ends, and trim controls and blanks.
		seen := strings.Trim(strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text), "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f ")
		for _, scheme := range []string{"javascript", "data", "vbscript", "blob", "file"} {
			if strings.HasPrefix(strings.ToLower(seen), scheme+":") {
				t.Errorf("%q is taken", text)
			}
		}
		if u, err := url.Parse(seen); err == nil && strings.EqualFold(u.Scheme, "javascript") {
			t.Errorf("%q is taken", text)
		}
	})
}
