package e2e_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// editor stands for code-server: it answers at --bind-addr with its arguments.
const editor = `#!/usr/bin/python3
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("editor %s " + " ".join(sys.argv[1:])).encode())
    def log_message(self, *args):
        pass
host, port = sys.argv[sys.argv.index("--bind-addr") + 1].split(":")
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
`

// writeRelease writes an archive as code-server's releases are, and returns its SHA-256.
func writeRelease(t *testing.T, path, version string) (sum string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	packed := gzip.NewWriter(io.MultiWriter(file, hash))
	out := tar.NewWriter(packed)
	program := fmt.Sprintf(editor, version)
	if err := out.WriteHeader(&tar.Header{Name: "code-server-" + version + "/bin/code-server", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(out, program); err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{out, packed, file} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// TestVSCodeFromAnArchive gives the server an editor, and opens it as an app of a workspace. The starter's own files are used, in a workspace that
// needs no Docker.
func TestVSCodeFromAnArchive(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	first, second := writeRelease(t, filepath.Join(folder, "code-server-1.tar.gz"), "1"), writeRelease(t, filepath.Join(folder, "code-server-2.tar.gz"), "2")
	d := startServer(t, "--archives-dir", folder)
	process, vscode := filepath.Join(d.dir, "process"), filepath.Join(d.dir, "vscode")
	d.coder("templates", "init", "--id", "process", process)
	d.coder("templates", "init", "--id", "vscode", vscode)
	for _, name := range []string{"vscode.tf", "vscode.sh"} {
		if err := os.Rename(filepath.Join(vscode, name), filepath.Join(process, name)); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort()
	push := func(name, sum string) {
		d.coder("templates", "push", "process", "-d", process, "-y", "--variable", "vscode_archive="+name, "--variable", "vscode_sha256="+sum, "--variable", "vscode_port="+port)
	}
	push("code-server-1.tar.gz", first)
	d.coder("create", "dev", "-t", "process", "-y")
	server, err := url.Parse(d.url())
	if err != nil {
		t.Fatal(err)
	}
	opens := func(version string) {
		t.Helper()
		testwait.Until(t, "the editor opens through the server", func() error {
			resp, body := d.askHost("vscode--main--dev--ada.localhost:"+server.Port(), d.token, "/", http.Header{})
			return testwait.Unless(resp.StatusCode == http.StatusOK && strings.HasPrefix(body, "editor "+version+" --auth none --bind-addr 127.0.0.1:"), "%s: %s", resp.Status, body)
		})
	}
	opens("1")
	if resp, _ := d.askHost("vscode--main--dev--ada.localhost:"+server.Port(), d.member("bob"), "/", http.Header{}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another user's editor: %s", resp.Status)
	}
	testwait.Until(t, "the editor is healthy", func() error {
		var w struct {
			LatestBuild struct {
				Resources []struct {
					Agents []struct {
						Apps []struct{ Slug, Health string }
					}
				}
			} `json:"latest_build"`
		}
		d.get("/api/v2/users/me/workspace/dev", &w)
		for _, r := range w.LatestBuild.Resources {
			for _, a := range r.Agents {
				for _, app := range a.Apps {
					return testwait.Equal(app.Slug+" "+app.Health, "vscode healthy")
				}
			}
		}
		return fmt.Errorf("there is no app: %+v", w)
	})
	d.attackArchives(first)

	// The operator provides the next version beside this one, and the workspace fetches it with its next start.
	push("code-server-2.tar.gz", second)
	d.coder("update", "dev")
	opens("2")
	if got := d.coder("ssh", "dev", "--", "ls ~/.local/share/coder-vscode"); strings.TrimSpace(got) != second {
		t.Errorf("the workspace keeps %q, want only %s", got, second)
	}
}

// attackArchives asks for archives from outside and with wrong contents.
func (d *deployment) attackArchives(sum string) {
	t := d.t
	t.Helper()
	for who, token := range map[string]string{"a stranger": "", "an owner of the deployment": d.token} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url()+"/api/v2/workspaceagents/me/archives/code-server-1.tar.gz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Coder-Session-Token", token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", who, resp.Status)
		}
	}
	other := strings.Repeat("0", 64)
	for _, tc := range []struct{ archive, sum, want string }{
		{"code-server-1.tar.gz", other, "is another one: its SHA-256 is " + sum},
		{"absent.tar.gz", sum, "no archive with this name"},
		{"../code-server-1.tar.gz", sum, "no archive with this name"},
		{"code-server-1.tar.gz", "abc", "64 hexadecimal digits"},
	} {
		out, errs, err := d.try("ssh", "dev", "--", "cd /tmp && coder fetch-archive "+tc.archive+" --sha256 "+tc.sum+" --file unverified; status=$?; ls -A; exit $status")
		if err == nil || !strings.Contains(errs, tc.want) || strings.Contains(out, "unverified") || strings.Contains(out, ".coder-archive") {
			t.Errorf("%s with %s: %v\n%s\n%s", tc.archive, tc.sum, err, out, errs)
		}
	}
	out, errs, err := d.try("ssh", "dev", "--", "cd /tmp && coder fetch-archive code-server-1.tar.gz --sha256 "+sum+" && sha256sum code-server-1.tar.gz")
	if err != nil || !strings.HasPrefix(out, sum) {
		t.Errorf("an archive: %v\n%s\n%s", err, out, errs)
	}
}
