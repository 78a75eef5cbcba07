package slim_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/codermesh/codermesh/v2/coderd/slim"
)

// signedRelease makes a key, and signs this test's program with it, as `make release` does. It returns what a server embeds, and the public
// key's file.
func signedRelease(t *testing.T) (embedded map[string]string, public string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cli, dist, private := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "release.key")
	if err := os.Symlink(exe, filepath.Join(cli, "coder-"+runtime.GOOS+"-"+runtime.GOARCH)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-new-key", private}, {"-root", t.TempDir(), "-cli", cli, "-programs", dist, "-key", private}} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "-C", "../../tools/release", "."}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("release %s: %v\n%s", args, err, out)
		}
	}
	embedded = map[string]string{}
	for _, name := range []string{"SHA256SUMS.release", "SHA256SUMS.release.sig"} {
		data, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Fatal(err)
		}
		embedded[name] = string(data)
	}
	return embedded, private + ".pub"
}

// serving replaces what the network answers; "" leaves it to the server.
func serving(t *testing.T, b *slim.Binaries, instead map[string]string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		name, ok := strings.CutPrefix(r.URL.Path, "/bin/")
		if text := instead[name]; text != "" {
			fmt.Fprint(w, text)
			return true
		}
		if !ok || !strings.HasPrefix(name, "SHA256SUMS.release") {
			return false
		}
		r.SetPathValue("name", name)
		if err := b.ServeHTTP(w, r); err != nil {
			t.Error(err)
		}
		return true
	}
}

// installs runs the script with a shell: it installs the program if want is "", and otherwise refuses, says that, and leaves nothing.
func (i installer) installs(t *testing.T, shell string, env, args []string, want string) {
	t.Helper()
	dir := t.TempDir()
	prefix := filepath.Join(dir, "opt", "coder")
	out, err := i.run(t, shell, env, append([]string{"--prefix", prefix, "--no-completion"}, args...)...)
	_, statErr := os.Stat(filepath.Join(prefix, "bin", "coder"))
	if installed := err == nil && statErr == nil; installed != (want == "") || !strings.Contains(out, want) {
		t.Errorf("got %v, %v, want %q:\n%s", err, statErr, want, out)
	}
	if want == "" {
		return
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || !strings.Contains(out, "Try: ") {
		t.Errorf("a refusal leaves %v (%v), and says:\n%s", left, err, out)
	}
}

// TestInstallSigned: with a key, the script installs what the makers of the release signed, and nothing else that a server, or a proxy before
// it, sends. The server serves what the release's tool wrote.
func TestInstallSigned(t *testing.T) {
	t.Parallel()
	embedded, public := signedRelease(t)
	_, foreign := signedRelease(t)
	data, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	pem := string(data)
	text := strings.Split(pem, "\n")
	b, err := slim.Open(fstest.MapFS{
		"dist/SHA256SUMS.release":     {Data: []byte(embedded["SHA256SUMS.release"])},
		"dist/SHA256SUMS.release.sig": {Data: []byte(embedded["SHA256SUMS.release.sig"])},
	}, t.TempDir(), &url.URL{Scheme: "https", Host: "coder.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	const owned = "#!/bin/sh\necho owned\n"
	own := "coder-" + runtime.GOOS + "-" + runtime.GOARCH
	list := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(owned)), own)
	for _, test := range []struct {
		name    string
		instead map[string]string
		env     []string
		args    []string
		want    string // "": it installs
	}{
		{name: "the key's file", args: []string{"--key", public}},
		{name: "the key's file in the environment", env: []string{"CODER_RELEASE_KEY=" + public}},
		{name: "the key", args: []string{"--key=" + pem}},
		{name: "the key in one line", args: []string{"--key", text[1] + text[2]}},
		{name: "another key", args: []string{"--key", foreign}, want: "is not signed with the key"},
		{name: "no key", args: []string{"--key", "release.pub"}, want: "release.pub is neither a public key nor"},
		{name: "an empty key", args: []string{"--key"}, want: "--key needs a public key"},
		{name: "the full program", args: []string{"--full", "--key", public}, want: "no signature of the program that it runs"},
		{name: "another program", args: []string{"--key", public}, instead: map[string]string{own: owned}, want: "the download is damaged"},
		{
			name: "another program in another list", args: []string{"--key", public}, want: "is not signed with the key",
			instead: map[string]string{own: owned, "SHA256SUMS": list, "SHA256SUMS.release": list},
		},
		{
			name: "a line before the list", args: []string{"--key", public}, want: "is not signed with the key",
			instead: map[string]string{own: owned, "SHA256SUMS.release": list + embedded["SHA256SUMS.release"]},
		},
		{
			name: "a page instead of the signature", args: []string{"--key", public}, want: "is not signed with the key",
			instead: map[string]string{"SHA256SUMS.release.sig": "<!doctype html>\n<title>Sign in</title>\n"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, serving(t, b, test.instead))
			each(t, func(t *testing.T, shell string) {
				server.installs(t, shell, test.env, test.args, test.want)
			})
		})
	}
}

// TestInstallUnsigned: with a key, a server that is not from a signed release is refused.
func TestInstallUnsigned(t *testing.T) {
	t.Parallel()
	_, public := signedRelease(t)
	server := serve(t, nil)
	each(t, func(t *testing.T, shell string) {
		prefix := t.TempDir()
		out, err := server.run(t, shell, nil, "--prefix", prefix, "--key", public)
		if err == nil || !strings.Contains(out, "whether it is from a signed release") {
			t.Errorf("got %v:\n%s", err, out)
		}
	})
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/bin/SHA256SUMS.release", nil)
	r.SetPathValue("name", "SHA256SUMS.release")
	if err := open(t, t.TempDir(), server.URL).ServeHTTP(w, r); err != nil || w.Code != http.StatusNotFound {
		t.Errorf("the list of an unsigned server: %d, %v", w.Code, err)
	}
}
