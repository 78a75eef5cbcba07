package terraform_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// TestNoSharedPluginCache: a template brings a provider of its own under another's name. If Terraform put it into a folder that all templates
// share, others would run it. The operator is told that their setting has no effect.
func TestNoSharedPluginCache(t *testing.T) {
	for how, concern := range map[string]string{"plugin_cache_dir": "plugin_cache_dir in ", "TF_PLUGIN_CACHE_DIR": "TF_PLUGIN_CACHE_DIR has no effect"} {
		t.Run(how, func(t *testing.T) {
			shared, err := os.MkdirTemp("/var/tmp", "cmplugins")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(shared); err != nil {
					t.Error(err)
				}
			})
			if err := os.Chmod(shared, 0o777); err != nil { // as operators had to, for the accounts of jobs
				t.Fatal(err)
			}
			if how == "plugin_cache_dir" {
				cliConfigOf(t, fmt.Sprintf("plugin_cache_dir = %q\n", shared))
			} else {
				cliConfigOf(t, "")
				t.Setenv(how, shared)
			}
			var log bytes.Buffer
			e := newExecutor(t, func(o *terraform.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			if e.Announce(); !strings.Contains(log.String(), concern) {
				t.Errorf("the log has no %q:\n%s", concern, &log)
			}
			all := map[string]string{"main.tf": "terraform {\n  required_providers {\n    aws = { source = \"hashicorp/aws\" }\n  }\n}\n"}
			for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} { // packed, so that Terraform copies it
				all["terraform.d/plugins/"+registry+"/hashicorp/aws/terraform-provider-aws_6.0.0_"+runtime.GOOS+"_"+runtime.GOARCH+".zip"] = zipped(t, "terraform-provider-aws_v6.0.0", "evil")
			}
			j := newTrial(t, all)
			if result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}); !strings.Contains(result.GetError(), "aws") { // installed, and no provider
				t.Errorf("the attacker's provider was not installed: %q\n%s", result.GetError(), j.sink.text())
			}
			entries, err := os.ReadDir(shared)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) > 0 {
				t.Errorf("a template's provider is where others find it: %s", entries)
			}
		})
	}
}

// zipped returns an archive with one program.
func zipped(t *testing.T, name, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: name}
	header.SetMode(0o755)
	file, err := w.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// moduleRepository serves a repository by HTTP with these files and links, and returns its URL.
func moduleRepository(t *testing.T, contents, links map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	work, bare := filepath.Join(dir, "work"), filepath.Join(dir, "served", "m.git")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	git("init", "--quiet", work)
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	git("-C", work, "add", ".")
	git("-C", work, "commit", "--quiet", "--message=one")
	git("clone", "--quiet", "--bare", work, bare)
	git("-C", bare, "update-server-info")
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(bare))))
	t.Cleanup(server.Close)
	return server.URL + "/m.git"
}

// TestLinksInModules: a module's repository has links to a file that only the daemon reads, and to folders of other templates. Neither Terraform
// nor the daemon, which reads the files of modules as well, follows them.
func TestLinksInModules(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	private, err := os.MkdirTemp(home, "cmtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(private); err != nil {
			t.Error(err)
		}
	})
	secret := filepath.Join(private, "secret")
	if err := os.WriteFile(secret, []byte("SECRET-OF-THE-HOST is no HCL {{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const main = `output "answer" { value = "from-the-module" }`
	for what, links := range map[string]map[string]string{
		"none":            nil,
		"a source":        {"other.tf": secret},
		"JSON":            {"other.tf.json": secret},
		"a lock file":     {".terraform.lock.hcl": secret},
		"a folder":        {"up": "../../../../../../../.." + private},
		"a data file":     {"data.txt": secret},
		"a link to links": {"data.txt": "up/secret", "up": private},
	} {
		t.Run(what, func(t *testing.T) {
			address := moduleRepository(t, map[string]string{"main.tf": main}, links)
			j := newTrial(t, files(`
module "m" {
  source = "git::`+address+`"
}
resource "terraform_data" "vm" {
  input = module.m.answer
  provisioner "local-exec" {
    command = "for f in data.txt other.tf other.tf.json .terraform.lock.hcl up/secret; do cat .terraform/modules/m/$f; done; true"
  }
}
`))
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
			if text := result.GetError() + j.sink.text() + string(result.GetWorkspaceBuild().GetState()); strings.Contains(text, "SECRET-OF-THE-HOST") {
				t.Errorf("the link was followed:\n%s", text)
			}
			if what == "none" && result.GetError() != "" {
				t.Errorf("the owner's module: %s\n%s", result.GetError(), j.sink.text())
			}
		})
	}
}

// TestModulesOfOtherTemplates: a template names the prepared folder of another one as its module, by every way in which it can name it.
func TestModulesOfOtherTemplates(t *testing.T) {
	t.Parallel()
	var cache string
	e := newExecutor(t, func(o *terraform.Options) { cache = filepath.Join(o.CacheDir, "templates") })
	j := newTrial(t, files(`output "answer" { value = "TEXT-OF-ANOTHER-TEMPLATE" }`))
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	versions, err := os.ReadDir(cache)
	if err != nil || len(versions) != 1 {
		t.Fatalf("versions %v, %v", versions, err)
	}
	other := versions[0].Name()
	for what, source := range map[string]string{
		"beside init": "../../" + other, "beside a job": "../../../../../../../../../../../" + filepath.Join(cache, other),
		"a path": filepath.Join(cache, other), "a URL": "file://" + filepath.Join(cache, other), "git": "git::file://" + filepath.Join(cache, other),
	} {
		t.Run(what, func(t *testing.T) {
			j := newTrial(t, files("module \"m\" {\n  source = \""+source+"\"\n}\noutput \"o\" {\n  value = module.m.answer\n}\n"))
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
			if text := j.sink.text() + string(result.GetWorkspaceBuild().GetState()); result.GetError() == "" || strings.Contains(text, "TEXT-OF") {
				t.Errorf("the other template was read: %q\n%s", result.GetError(), text)
			}
		})
	}
}

// TestForeignChecksums: the lock file of a template decides what is installed for this template, never that something else is taken than
// what the operator's mirror has.
func TestForeignChecksums(t *testing.T) {
	t.Setenv("TF_CLI_CONFIG_FILE", mirrorProvider(t, "example/mirrored"))
	e := newExecutor(t)
	const wants = "terraform {\n  required_providers {\n    mirrored = { source = \"example/mirrored\" }\n  }\n}\n"
	lock := func(version, hash string) string {
		return fmt.Sprintf("provider \"registry.terraform.io/example/mirrored\" {\n  version = %[1]q\n  hashes = [%[2]q]\n}\nprovider \"registry.opentofu.org/example/mirrored\" {\n  version = %[1]q\n  hashes = [%[2]q]\n}\n", version, hash)
	}
	for what, c := range map[string]struct{ lock, want string }{
		"none":            {"", ""},
		"another content": {lock("1.2.3", "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), "checksum"},
		"another version": {lock("9.9.9", "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), "9.9.9"},
		"no HCL":          {"provider {{{", "dependency lock file"},
	} {
		t.Run(what, func(t *testing.T) {
			all := map[string]string{"main.tf": wants}
			if c.lock != "" {
				all[".terraform.lock.hcl"] = c.lock
			}
			j := newTrial(t, all)
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
			if text := result.GetError() + j.sink.text(); (result.GetError() == "") != (c.want == "") || !strings.Contains(text, c.want) {
				t.Errorf("error %q, want %q\n%s", result.GetError(), c.want, text)
			}
		})
	}
}

// TestDeletedCache: the cache folder may be deleted at any time, with the program that starts sandboxes in it. Later builds make what they need, and
// our own program starts their sandboxes.
func TestDeletedCache(t *testing.T) {
	opts := options(t)
	var unpacked string
	opts.Launcher = func(dir string) (string, error) {
		unpacked = filepath.Join(dir, "small")
		program, err := os.ReadFile(opts.Worker[0])
		if err != nil {
			return "", err
		}
		return unpacked, os.WriteFile(unpacked, program, 0o755)
	}
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	if _, err := os.Stat(unpacked); err != nil {
		t.Fatal(err)
	}
	build := func() {
		t.Helper()
		j := newTrial(t, files(`resource "terraform_data" "a" {}`))
		ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: metadata()}))
	}
	build()
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", `chmod -R u+w "$1" && rm -r "$1"`, "sh", opts.CacheDir).CombinedOutput(); err != nil {
		t.Fatalf("delete the cache: %v: %s", err, out)
	}
	build()
	build()
	if _, err := os.Stat(unpacked); err == nil {
		t.Error("the cache was not deleted")
	}
}
