package appaddr_test

import (
	"net/url"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/appaddr"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://example.com/a?b=c#d": "https://example.com/a?b=c#d", "vscode://x/open?token=$SESSION_TOKEN&a=%20": "vscode://x/open?token=$SESSION_TOKEN&a=%20",
		`vscode:x" --extensionDevelopmentPath=\\evil\x "`: "vscode:x%22%20--extensionDevelopmentPath=%5C%5Cevil%5Cx%20%22", "cursor://x?a='b'": "cursor://x?a='b'",
		"zed://a`b`|{c}<d>^": "zed://a%60b%60%7C%7Bc%7D%3Cd%3E%5E", "x:\u202eé\n": "x:%E2%80%AEé%0A",
	} {
		if got := appaddr.Escape(address); got != want {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
	}
}

func TestNamesOption(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"ssh://-oProxyCommand=reboot/", "ssh://-oProxyCommand=x@host/", "ssh:-oProxyCommand=x", "ssh:%2doProxyCommand=x", "vnc:///-x", "ssh://%2doProxyCommand=x@host", "rdp:/-x", "ssh://[",
	} {
		if !appaddr.NamesOption(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{
		"ssh://ada@host:22/-x", "https://example.com/-/x?-a", "vscode://coder.coder-remote/open?x=-y", "jetbrains-gateway://connect#type=coder", "/-/docs", "mailto:a-b@example.com", "https://example.com/a b",
	} {
		if appaddr.NamesOption(good) {
			t.Errorf("%q is refused", good)
		}
	}
}

// TestMisleadsToken: a template's author gets no session of those who open its apps.
func TestMisleadsToken(t *testing.T) {
	t.Parallel()
	server := &url.URL{Scheme: "https", Host: "coder.example.com"}
	for _, bad := range []string{
		"vscode://coder.coder-remote/open?url=https://evil.example&token=$SESSION_TOKEN", "vscode://coder.coder-remote/open?url=https%3A%2F%2Fevil.example&token=$SESSION_TOKEN",
		"vscode://coder.coder-remote/open?url=https://coder.example.com&url=https://evil.example&token=$SESSION_TOKEN", "vscode://x/open?%75rl=https://evil.example&token=$SESSION_TOKEN",
		"jetbrains-gateway://connect#type=coder&URL=https://evil.example&token=$SESSION_TOKEN", "jetbrains-gateway://connect?a=b#url=https://evil.example&token=$SESSION_TOKEN",
		"vscode://vscode.git/clone?url=https://evil.example/$SESSION_TOKEN", "vscode://vscode.git/clone?url=evil.example:$SESSION_TOKEN", "vscode://vscode.git/clone?url=git@evil.example:x&a=$SESSION_TOKEN",
		"vscode://$SESSION_TOKEN.evil.example/x", "zed://ssh/$SESSION_TOKEN@evil.example/", "cursor:$SESSION_TOKEN", "vscode://x?$SESSION_TOKEN", "vscode://x?a=b$SESSION_TOKEN",
		"coder://evil.example/v0/open?token=$SESSION_TOKEN", "vscode://x?url=https://coder.example.com.evil.example&token=$SESSION_TOKEN", "vscode://x?url=https://coder.example.com@evil.example&token=$SESSION_TOKEN",
		"vscode://x?url=http://coder.example.com&token=$SESSION_TOKEN", "vscode://x?deployment_url=//evil.example&token=$SESSION_TOKEN", "vscode://x?url=evil.example&token=$SESSION_TOKEN",
		"vscode://x?url=%zz&token=$SESSION_TOKEN", "vscode://x?%zz&token=$SESSION_TOKEN",
	} {
		if !appaddr.MisleadsToken(bad, server) {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{
		"", "https://example.com", "vscode://coder.coder-remote/open?owner=a&url=https://coder.example.com&token=$SESSION_TOKEN", "cursor://x?url=https%3A%2F%2Fcoder.example.com%2F&token=$SESSION_TOKEN&openRecent=true",
		"jetbrains-gateway://connect#type=coder&url=HTTPS://CODER.example.com/&token=$SESSION_TOKEN&ide_download_link=https://download.jetbrains.com/x",
		"jetbrains://gateway/coder?&workspace=dev&token=$SESSION_TOKEN", "coder://coder.example.com/v0/open/ws/dev?token=$SESSION_TOKEN", "vscode://x?url=https://evil.example",
	} {
		if appaddr.MisleadsToken(good, server) {
			t.Errorf("%q is refused", good)
		}
	}
}
