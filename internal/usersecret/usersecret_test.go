package usersecret_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/usersecret"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "api-key", "API_KEY", "a.b", "0", "_x", strings.Repeat("n", usersecret.MaxName)} {
		if problem := usersecret.CheckName(good); problem != "" {
			t.Errorf("%q: %s", good, problem)
		}
	}
	for _, bad := range []string{"", ".", "..", "-", "a/b", "a b", "a\n", "ä", "-a", "a-", "~", strings.Repeat("n", usersecret.MaxName+1)} {
		if usersecret.CheckName(bad) == "" {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestCheckEnv(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "API_KEY", "_", "npm_token", "PATHS", "GITHUB_TOKEN", "HOMEPAGE", "AWS_SECRET_ACCESS_KEY", "LANG"} {
		if problem := usersecret.CheckEnv(good); problem != "" {
			t.Errorf("%q: %s", good, problem)
		}
	}
	for _, bad := range []string{
		"1A", "A-B", "A=B", "A B", "A\x00", "Ä", strings.Repeat("A", usersecret.MaxEnv+1),
		"PATH", "Path", "HOME", "LD_PRELOAD", "ld_preload", "CODER", "CODER_SESSION_TOKEN", "coder_agent_token", "BASH_ENV", "ENV", "IFS", "GIT_SSH_COMMAND",
		"GIT_ASKPASS", "GIT_CONFIG_COUNT", "SSH_AUTH_SOCK", "VSCODE_PROXY_URI", "DYLD_INSERT_LIBRARIES", "GODEBUG", "USER", "SHELL",
	} {
		if usersecret.CheckEnv(bad) == "" {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"~/.npmrc": ".npmrc", "~/a/b": "a/b", "/home/ann/.netrc": ".netrc", "/home/ann/x/y": "x/y", "~/..a": "..a", "~/~": "~",
	} {
		if got, err := usersecret.Below("/home/ann", file); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", file, got, err, want)
		}
	}
	for _, bad := range []string{
		"", "~", "~/", "/", "a", "./a", "~ann/a", "~/../bob/x", "~/a/../../b", "~/./a", "~//a", "~/a/", "/home/ann", "/home/ann/", "/home/ann/../bob/x",
		"/home/annabel/x", "/etc/passwd", "//etc/passwd", "/home/ann//x", "~/a\nb", "~/a\x00", "~/\xff", `~/a\b`, "~/.local/state/codermesh-agent/x",
		"/home/ann/.local/state/codermesh-agent", "~/" + strings.Repeat("a", 201), "~/" + strings.Repeat("a/", usersecret.MaxFile),
	} {
		if got, err := usersecret.Below("/home/ann", bad); err == nil {
			t.Errorf("%q: is accepted as %q", bad, got)
		}
	}
	if got, err := usersecret.Below("/", "/root.txt"); err != nil || got != "root.txt" {
		t.Errorf("home is the root: %q, %v", got, err)
	}
	for _, home := range []string{"", ".", "relative"} {
		if got, err := usersecret.Below(home, "/relative/x"); err == nil {
			t.Errorf("home %q: got %q", home, got)
		}
	}
}

func TestCheckOthers(t *testing.T) {
	t.Parallel()
	if usersecret.CheckValue("") == "" || usersecret.CheckValue(strings.Repeat("v", usersecret.MaxValue+1)) == "" || usersecret.CheckValue("a\x00") == "" {
		t.Error("a bad value is accepted")
	}
	if problem := usersecret.CheckValue("line 1\nline 2\n"); problem != "" {
		t.Errorf("two lines: %s", problem)
	}
	if usersecret.CheckDescription("a\nb") == "" || usersecret.CheckDescription(strings.Repeat("d", usersecret.MaxDescription+1)) == "" {
		t.Error("a bad description is accepted")
	}
}

// FuzzBelow checks that no path leaves home, whatever it is.
func FuzzBelow(f *testing.F) {
	for _, seed := range []string{"~/.npmrc", "/home/ann/.netrc", "~/../x", "/home/ann/../x", "~/a//b", "/home/ann/.local/state/codermesh-agent/x"} {
		f.Add("/home/ann", seed)
	}
	f.Fuzz(func(t *testing.T, home, file string) {
		rel, err := usersecret.Below(home, file)
		if err == nil && (!filepath.IsLocal(rel) || filepath.Clean(rel) != rel || strings.ContainsRune(rel, 0)) {
			t.Errorf("%q below %q: %q is not a clean local path", file, home, rel)
		}
	})
}

// FuzzCheckEnv checks that an accepted name is one that every shell can read, and never one of the workspace's own.
func FuzzCheckEnv(f *testing.F) {
	for _, seed := range []string{"API_KEY", "PATH", "CODER_X", "a=b", "LD_PRELOAD"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if usersecret.CheckEnv(name) != "" || name == "" {
			return
		}
		upper := strings.ToUpper(name)
		if strings.ContainsAny(name, "=\x00 \n") || strings.HasPrefix(upper, "CODER") || strings.HasPrefix(upper, "LD_") || upper == "PATH" || upper == "HOME" {
			t.Errorf("%q is accepted", name)
		}
	})
}

// FuzzCheckName checks that an accepted name is one segment of a path.
func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"api-key", "..", "a/b", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if usersecret.CheckName(name) == "" && (!filepath.IsLocal(name) || strings.ContainsAny(name, `/\?#%`) || name == ".") {
			t.Errorf("%q is accepted", name)
		}
	})
}
