package connect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const hostCAKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJBp39MQBSTFVv4tQ2rSlbPFzJz3mG6hPDlQGbWtmFSo"

// TestAuthorityLines: a server's CA is trusted for workspaces, and a server cannot make it vouch for other hosts.
func TestAuthorityLines(t *testing.T) {
	t.Parallel()
	const want = "@cert-authority *.coder " + hostCAKey + "\n"
	for _, hosts := range []string{"*.coder", "*.coder,ssh.example.com", "*.coder,ssh.example.com,[ssh.example.com]:2222"} {
		if got, err := authorityLines([]string{"@cert-authority " + hosts + " " + hostCAKey, "@cert-authority *.coder " + hostCAKey}, workspaceHosts); err != nil || got != want+want {
			t.Errorf("%s: %q, %v", hosts, got, err)
		}
	}
	for _, line := range []string{
		"", hostCAKey, "*.coder " + hostCAKey, "@revoked *.coder " + hostCAKey, "@cert-authority * " + hostCAKey, "@cert-authority *.com,*.coder " + hostCAKey,
		"@cert-authority *.coder,* " + hostCAKey, "@cert-authority *.coder,git?.com " + hostCAKey, "@cert-authority github.com " + hostCAKey, "@cert-authority *.coder x",
		"@cert-authority *.coder " + hostCAKey + "\ngithub.com " + hostCAKey, "@cert-authority *.coder\t\x1b[2J " + hostCAKey, "@cert-authority *.coder,!x " + hostCAKey,
		"@cert-authority *.coder " + hostCAKey + strings.Repeat(" ", maxAuthority),
	} {
		if got, err := authorityLines([]string{line}, workspaceHosts); err == nil {
			t.Errorf("%.100q: %q", line, got)
		}
	}
	if _, err := authorityLines(make([]string, 9), workspaceHosts); err == nil {
		t.Error("nine lines are used")
	}
}

func FuzzAuthorityLines(f *testing.F) {
	f.Add("@cert-authority *.coder,ssh.example.com " + hostCAKey)
	f.Fuzz(func(t *testing.T, line string) {
		got, err := authorityLines([]string{line}, workspaceHosts)
		if err == nil && (!strings.HasPrefix(got, "@cert-authority *.coder ") || strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\n")) {
			t.Errorf("%q became %q", line, got)
		}
	})
}

// TestAuthorityFile: the file has what the server says, and is gone when it says nothing.
func TestAuthorityFile(t *testing.T) {
	t.Parallel()
	a := authority{filepath.Join(t.TempDir(), "new", fileHostCA), "@cert-authority *.coder " + hostCAKey + "\n"}
	if err := a.write(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(a.path); err != nil || string(got) != a.text {
		t.Errorf("%q, %v", got, err)
	}
	a.text = ""
	for range 2 {
		if err := a.write(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(a.path); !os.IsNotExist(err) {
			t.Errorf("the file is there: %v", err)
		}
	}
}
