//go:build linux

package autostart

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// texts returns the keys and strings of a property list, in order.
func texts(t *testing.T, list string) (all []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(list))
	inside := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, list)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside = token.Name.Local
		case xml.EndElement:
			inside = ""
		case xml.CharData:
			if inside == "key" || inside == "string" {
				all = append(all, string(token))
			}
		}
	}
}

// TestPlist reads the service's description for launchd, with names that XML would take for its own.
func TestPlist(t *testing.T) {
	t.Parallel()
	o := Options{Account: "ann", Home: "/Users/ann", Folder: "/Users/ann/a&b <c>", URL: "https://coder.example.com/?a=1&b=2", Token: "secret"}
	env := func(name string) (string, bool) {
		return map[string]string{"HTTPS_PROXY": "http://proxy/?a&b", "NO_PROXY": "a\nb"}[name], name == "HTTPS_PROXY" || name == "NO_PROXY"
	}
	want := []string{
		"Label", "codermesh-agent", "WorkingDirectory", "/Users/ann", "StandardErrorPath", "/Users/ann/a&b <c>/agent.log",
		"ProgramArguments", "/Users/ann/a&b <c>/coder", "agent", "--agent-url", o.URL, "--agent-token-file", "/Users/ann/a&b <c>/token",
		"EnvironmentVariables", "HTTPS_PROXY", "http://proxy/?a&b", "RunAtLoad", "KeepAlive", "Crashed",
	}
	if got := texts(t, plist(o, env)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	o.Machine = true
	if got := texts(t, plist(o, env)); !slices.Contains(got, "UserName") || slices.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
}
