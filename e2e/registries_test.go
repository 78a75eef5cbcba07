package e2e_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// registries serves a package "hello" to npm, pip and Go and a module to Terraform, as a mirror on an operator's network does: files below a folder.
type registries struct {
	*httptest.Server

	mu    sync.Mutex
	paths []string // guarded by mu: what was requested
}

func serveRegistries(t *testing.T) *registries {
	t.Helper()
	dir := t.TempDir()
	r := &registries{}
	files := http.FileServer(http.Dir(dir))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.paths = append(r.paths, req.URL.Path)
		r.mu.Unlock()
		if place, ok := strings.CutSuffix(req.URL.Path, "/download"); ok && strings.HasPrefix(place, "/modules/") {
			w.Header().Set("X-Terraform-Get", "./module.tar.gz")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		files.ServeHTTP(w, req)
	}))
	t.Cleanup(r.Close)
	tarball := tarOf(t, map[string]string{
		"package/package.json": `{"name": "hello", "version": "1.0.0", "main": "index.js"}`,
		"package/index.js":     `module.exports = "hello from npm"`,
	})
	sum := sha512.Sum512(tarball)
	for name, text := range map[string][]byte{
		"npm/hello": fmt.Appendf(nil, `{"name": "hello", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "hello", "version": "1.0.0",
			"dist": {"tarball": "%s/npm/tarballs/hello-1.0.0.tgz", "integrity": "sha512-%s"}}}}`, r.URL, base64.StdEncoding.EncodeToString(sum[:])),
		"npm/tarballs/hello-1.0.0.tgz": tarball,

		"pypi/simple/hello/index.html": []byte(`<!DOCTYPE html><html><body><a href="../../hello-1.0.0-py3-none-any.whl">hello-1.0.0-py3-none-any.whl</a></body></html>`),
		"pypi/hello-1.0.0-py3-none-any.whl": zipOf(t, map[string]string{
			"hello.py":                       `word = "hello from pip"`,
			"hello-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0.0\n",
			"hello-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: e2e\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
			"hello-1.0.0.dist-info/RECORD":   "hello.py,,\nhello-1.0.0.dist-info/METADATA,,\nhello-1.0.0.dist-info/WHEEL,,\nhello-1.0.0.dist-info/RECORD,,\n",
		}),

		"go/example.com/hello/@v/list":        []byte("v1.0.0\n"),
		"go/example.com/hello/@v/v1.0.0.info": []byte(`{"Version": "v1.0.0"}`),
		"go/example.com/hello/@v/v1.0.0.mod":  []byte("module example.com/hello\n"),
		"go/example.com/hello/@v/v1.0.0.zip": zipOf(t, map[string]string{
			"example.com/hello@v1.0.0/go.mod":    "module example.com/hello\n",
			"example.com/hello@v1.0.0/hello.txt": "hello from Go\n",
		}),

		"modules/v1/example/motd/any/versions":            []byte(`{"modules": [{"versions": [{"version": "1.0.0"}]}]}`),
		"modules/v1/example/motd/any/1.0.0/module.tar.gz": tarOf(t, map[string]string{"main.tf": `output "text" { value = "hello from a module" }`}),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// asked reports whether a path was requested.
func (r *registries) asked(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.paths, path)
}

func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, closed := range []error{w.Close(), packed.Close()} {
		if closed != nil {
			t.Fatal(closed)
		}
	}
	return out.Bytes()
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, text := range files {
		file, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestOfflineExample pushes examples/offline with registries on this machine. Terraform gets a module, and npm, pip and Go in a workspace get their
// packages from them, without a setting of the user's.
func TestOfflineExample(t *testing.T) {
	t.Parallel()
	r := serveRegistries(t)
	// Go may be in a folder that a sandbox hides.
	d := prepare(t, "--provisioner-isolation", "none")
	config, err := os.ReadFile("../examples/offline/terraformrc")
	if err != nil {
		t.Fatal(err)
	}
	ours := strings.NewReplacer("https://packages.example.com", r.URL, "/srv/terraform/providers", t.TempDir()).Replace(string(config))
	cliConfig := filepath.Join(d.dir, "terraformrc")
	if err := os.WriteFile(cliConfig, []byte(ours), 0o644); err != nil {
		t.Fatal(err)
	}
	d.extra = []string{"TF_CLI_CONFIG_FILE=" + cliConfig}
	d.begin()
	template := filepath.Join(d.dir, "offline")
	if err := os.CopyFS(template, os.DirFS("../examples/offline")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "motd.tf"), []byte(`
module "motd" {
  source  = "registry.coder.com/example/motd/any"
  version = "1.0.0"
}

resource "coder_env" "motd" {
  agent_id = coder_agent.main.id
  name     = "MOTD"
  value    = module.motd.text
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "offline", "-d", template, "-y", "--variable", "npm_registry="+r.URL+"/npm/",
		"--variable", "pip_index="+r.URL+"/pypi/simple/", "--variable", "go_proxy="+r.URL+"/go")
	d.coder("create", "dev", "-t", "offline", "-y")
	if out := d.coder("ssh", "dev", "--", "echo $MOTD"); out != "hello from a module\n" {
		t.Errorf("the module's output: got %q", out)
	}
	for _, tt := range []struct {
		program, script, want, asked string
	}{
		{"npm", `npm install --no-fund hello && node -e 'console.log(require("hello"))'`, "hello from npm", "/npm/tarballs/hello-1.0.0.tgz"},
		{"python3", `python3 -m pip install --quiet --target . hello && python3 -c 'import hello; print(hello.word)'`, "hello from pip", "/pypi/hello-1.0.0-py3-none-any.whl"},
		// Not go run, which would compile Go's own packages first.
		{
			"go", `GOFLAGS=-modcacherw GOPATH=$PWD go mod download example.com/hello@v1.0.0 && cat pkg/mod/example.com/hello@v1.0.0/hello.txt`,
			"hello from Go", "/go/example.com/hello/@v/v1.0.0.zip",
		},
	} {
		t.Run(tt.program, func(t *testing.T) {
			path, err := exec.LookPath(tt.program)
			if err == nil && tt.program == "python3" {
				// Python itself: a pyenv's "python3" rewrites its user's folders after each installation, one process at a time.
				var out []byte
				out, err = exec.CommandContext(t.Context(), path, "-c", "import pip, sys; print(sys.executable)").Output()
				path = strings.TrimSpace(string(out))
			}
			if err != nil {
				t.Skipf("this machine lacks %s: %v", tt.program, err)
			}
			out, stderr, err := d.try("ssh", "dev", "--", "set -e; PATH="+filepath.Dir(path)+":$PATH; mkdir -p "+tt.program+"; cd "+tt.program+"; "+tt.script)
			if err != nil || !strings.HasSuffix(out, tt.want+"\n") {
				t.Errorf("%v: got %q, want %q at its end\n%s", err, out, tt.want, stderr)
			}
			if !r.asked(tt.asked) {
				t.Errorf("%s did not ask for %s: the registry was asked for %q", tt.program, tt.asked, r.paths)
			}
		})
	}
}
