package e2e_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
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

	"github.com/codermesh/codermesh/v2/coderd/extauth/extauthtest"
)

// registries serves a package "hello" to npm, pip and Go and a module to Terraform, as a mirror on an operator's network does: files below a folder.
type registries struct {
	*httptest.Server

	mu    sync.Mutex
	paths []string // guarded by mu: what was requested
}

func serveRegistries(t *testing.T) *registries {
	t.Helper()
	return serveRegistriesTo(t, httptest.NewServer, "", func(*http.Request) bool { return true })
}

// serveRegistriesTo serves them to requests that admit accepts, with npm's below another path, too.
func serveRegistriesTo(
	t *testing.T, start func(http.Handler) *httptest.Server, npm string, admit func(*http.Request) bool,
) *registries {
	t.Helper()
	dir := t.TempDir()
	r := &registries{}
	files := http.FileServer(http.Dir(dir))
	r.Server = start(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.paths = append(r.paths, req.URL.Path)
		r.mu.Unlock()
		if !admit(req) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
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
			"dist": {"tarball": "%s/npm/tarballs/hello-1.0.0.tgz", "integrity": "sha512-%s"}}}}`, r.URL+npm, base64.StdEncoding.EncodeToString(sum[:])),
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
			path, err := programPath(t, tt.program)
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

// artifactory serves the packages where JFrog Artifactory has them, to those who show a good token of the provider: ada with it as password, or
// the token alone.
func artifactory(t *testing.T, provider *extauthtest.Provider) *registries {
	t.Helper()
	admit := func(r *http.Request) bool {
		for from, to := range map[string]string{"/artifactory/api/npm/npm/": "/npm/", "/artifactory/api/pypi/pypi/": "/pypi/", "/artifactory/api/go/go/": "/go/"} {
			if rest, ok := strings.CutPrefix(r.URL.Path, from); ok {
				r.URL.Path = to + rest
			}
		}
		if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			return provider.Good(bearer)
		}
		user, password, _ := r.BasicAuth()
		return user == "ada" && provider.Good(password)
	}
	return serveRegistriesTo(t, httptest.NewTLSServer, "/artifactory/api/npm", admit)
}

// TestArtifactoryExample pushes examples/artifactory. npm, pip and Go in a workspace get packages with its owner's login,
// and Docker has it; without it the registry refuses them.
func TestArtifactoryExample(t *testing.T) {
	t.Parallel()
	provider := extauthtest.New(t)
	r := artifactory(t, provider)
	// Go may be in a folder that a sandbox hides.
	d := prepare(t, "--provisioner-isolation", "none")
	d.extra = []string{
		"CODER_EXTERNAL_AUTH_0_ID=jfrog", "CODER_EXTERNAL_AUTH_0_TYPE=jfrog", "CODER_EXTERNAL_AUTH_0_DISPLAY_NAME=JFrog Artifactory",
		"CODER_EXTERNAL_AUTH_0_CLIENT_ID=" + extauthtest.ClientID, "CODER_EXTERNAL_AUTH_0_CLIENT_SECRET=" + extauthtest.ClientSecret,
		"CODER_EXTERNAL_AUTH_0_AUTH_URL=" + provider.URL + "/authorize", "CODER_EXTERNAL_AUTH_0_TOKEN_URL=" + provider.URL + "/token",
		"CODER_EXTERNAL_AUTH_0_SCOPES=applied-permissions/user",
	}
	d.begin()
	example, err := filepath.Abs("../examples/artifactory")
	if err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "artifactory", "-d", example, "-y",
		"--variable", "artifactory_url="+r.URL+"/artifactory")
	if _, stderr, err := d.try("create", "dev", "-t", "artifactory", "-y"); err == nil || !strings.Contains(stderr, "/external-auth/jfrog") {
		t.Fatalf("create without the login: %v\n%s", err, stderr)
	}
	d.linkTo("jfrog", d.token)
	d.coder("create", "dev", "-t", "artifactory", "-y", "--wait")
	authority := filepath.Join(d.dir, "registry.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	trust := fmt.Sprintf("export SSL_CERT_FILE=%[1]s NODE_EXTRA_CA_CERTS=%[1]s PIP_CERT=%[1]s; ", authority)
	for program, script := range map[string]string{
		"npm":     `npm install --no-fund --no-audit hello && node -e 'console.log(require("hello"))'`,
		"python3": `python3 -m pip install --quiet --disable-pip-version-check --target . hello && python3 -c 'import hello; print(hello.word)'`,
		"go":      `GOTOOLCHAIN=local GOFLAGS=-modcacherw GOPATH=$PWD go mod download example.com/hello@v1.0.0 && cat pkg/mod/example.com/hello@v1.0.0/hello.txt`,
	} {
		t.Run(program, func(t *testing.T) {
			path, err := programPath(t, program)
			if err != nil {
				t.Skipf("this machine lacks %s: %v", program, err)
			}
			in := func(dir, before string) (string, string, error) {
				return d.try("ssh", "dev", "--", "set -e; PATH="+filepath.Dir(path)+":$PATH; mkdir -p "+dir+"; cd "+dir+"; "+trust+before+script)
			}
			if out, stderr, err := in(program, ""); err != nil || !strings.Contains(out, "hello from ") {
				t.Errorf("%s: %v: got %q\n%s", program, err, out, stderr)
			}
			if out, _, err := in("no-"+program, "export NETRC=/dev/null NPM_CONFIG_GLOBALCONFIG=/dev/null npm_config_cache=$PWD PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1; "); err == nil {
				t.Errorf("%s without the login: got %q", program, out)
			}
		})
	}
	var docker struct {
		Auths map[string]struct{ Auth []byte }
	}
	if err := json.Unmarshal([]byte(d.coder("ssh", "dev", "--", "cat $DOCKER_CONFIG/config.json")), &docker); err != nil {
		t.Fatal(err)
	}
	auth := docker.Auths[strings.TrimPrefix(r.URL, "https://")].Auth
	if name, token, _ := strings.Cut(string(auth), ":"); name != "ada" || !provider.Good(token) {
		t.Errorf("docker has the login %q", auth)
	}
	if out := d.coder("ssh", "dev", "--", "find ~/.artifactory -type f -perm /077"); out != "" {
		t.Errorf("others can read %s", out)
	}
}

// programPath returns where a program is. For Python that is Python itself: a pyenv's "python3" rewrites its user's
// folders after each installation, one process at a time.
func programPath(t *testing.T, name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil || name != "python3" {
		return path, err
	}
	out, err := exec.CommandContext(t.Context(), path, "-c", "import pip, sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
}
