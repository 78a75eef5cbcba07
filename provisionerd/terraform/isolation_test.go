package terraform_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// TestEnvironment lets a hostile template print its environment, and what it can read of other environments.
func TestEnvironment(t *testing.T) {
	t.Setenv("CODER_PG_CONNECTION_URL", "postgres://secret-one")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-two")
	t.Setenv("OPERATOR_NAMED", "visible")
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
	hidden := filepath.Join(private, "secret")
	e := newExecutor(t, func(o *terraform.Options) { o.ExtraEnv = []string{"OPERATOR_NAMED"} })
	if err := os.WriteFile(hidden, []byte("secret-three"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := newTrial(t, files(fmt.Sprintf(`
data "coder_workspace_owner" "me" {}
resource "terraform_data" "spy" {
  provisioner "local-exec" {
    command = "env; tr '\\0' '\\n' </proc/%d/environ; for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ; done; cat %s; echo end-of-spying"
  }
}
`, os.Getpid(), hidden)))
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	log := j.sink.text()
	if !strings.Contains(log, "end-of-spying") || !strings.Contains(log, "OPERATOR_NAMED=visible") {
		t.Fatalf("the spy did not work:\n%s", log)
	}
	secrets := []string{"secret-one", "secret-two", "SESSION-TOKEN-SECRET", "PRIVATE-KEY-SECRET"}
	if !strings.Contains(e.Isolation(), "Landlock") {
		t.Fatalf("no Landlock here: %s", e.Isolation())
	}
	for _, secret := range append(secrets, "secret-three") {
		if strings.Contains(log, secret) {
			t.Errorf("the template saw %s", secret)
		}
	}
	for _, secret := range secrets {
		if bytes.Contains(built.GetState(), []byte(secret)) {
			t.Errorf("the state holds %s", secret)
		}
	}
}

func TestSecretsOnlyWhenNamed(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for name, c := range map[string]struct {
		text       string
		token, key bool
	}{
		"none":    {text: "# session_token in a comment\n"},
		"token":   {text: "output \"o\" {\n  value     = data.coder_workspace_owner.me.session_token\n  sensitive = true\n}\n", token: true},
		"quoted":  {text: "locals {\n  o = data.coder_workspace_owner.me\n}\noutput \"o\" {\n  value     = local.o[\"ssh_private_key\"]\n  sensitive = true\n}\n", key: true},
		"heredoc": {text: "output \"o\" {\n  value     = <<-E\n    ${data.coder_workspace_owner.me.session_token}\n  E\n  sensitive = true\n}\n", token: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := newTrial(t, files("data \"coder_workspace_owner\" \"me\" {}\n"+c.text))
			state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})).GetState()
			if got := bytes.Contains(state, []byte("SESSION-TOKEN-SECRET")); got != c.token {
				t.Errorf("session token given: %v, want %v", got, c.token)
			}
			if got := bytes.Contains(state, []byte("PRIVATE-KEY-SECRET")); got != c.key {
				t.Errorf("private key given: %v, want %v", got, c.key)
			}
			if strings.Contains(j.sink.text(), "SECRET") {
				t.Errorf("a secret is in the log:\n%s", j.sink.text())
			}
		})
	}
}

// TestManyAtOnce runs jobs concurrently: each must see its own facts.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(o *terraform.Options) { o.Slots = 4 })
	template := files(`
data "coder_workspace" "me" {}
data "coder_parameter" "p" {
  name = "p"
}
resource "terraform_data" "vm" {
  input = "${data.coder_workspace.me.name}/${data.coder_parameter.p.value}"
}
`)
	var jobs sync.WaitGroup
	for n := range 8 {
		jobs.Go(func() {
			j := newTrial(t, template)
			j.slot = n
			m := metadata()
			m.WorkspaceName = fmt.Sprintf("w%d", n)
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m,
				Parameters: []*provisionerpb.ParameterValue{{Name: "p", Value: fmt.Sprint(n)}}})
			if result.GetError() != "" {
				t.Errorf("job %d: %s", n, result.GetError())
				return
			}
			if want := fmt.Sprintf(`"w%d/%d"`, n, n); !bytes.Contains(result.GetWorkspaceBuild().GetState(), []byte(want)) {
				t.Errorf("job %d: the state does not have %s", n, want)
			}
		})
	}
	jobs.Wait()
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for name, headers := range map[string][]tar.Header{
		"parent":         {{Name: "../evil.tf", Typeflag: tar.TypeReg}},
		"absolute":       {{Name: "/tmp/evil.tf", Typeflag: tar.TypeReg}},
		"link out":       {{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../../etc"}},
		"link absolute":  {{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
		"through a link": {{Name: "a/b", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "a/b/../../x", Typeflag: tar.TypeReg}},
		"hard link":      {{Name: "x.tf", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"device":         {{Name: "x.tf", Typeflag: tar.TypeChar}},
		"pipe":           {{Name: "x.tf", Typeflag: tar.TypeFifo}},
		"too large":      {{Name: "x.tf", Typeflag: tar.TypeReg, Size: 1 << 40}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := tar.NewWriter(&out)
			for _, h := range headers {
				h.Mode = 0o644
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			j := newTrial(t, nil)
			j.source = out.Bytes()
			if result := j.importIt(e, &provisionerpb.TemplateImport{}); !strings.Contains(result.GetError(), "the template") {
				t.Errorf("result %q", result.GetError())
			}
		})
	}
}

// TestStrayFiles puts files into the template that would change a build's meaning.
func TestStrayFiles(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := files("variable \"v\" {\n  default = \"right\"\n}\nterraform {\n  backend \"s3\" {}\n}\nresource \"terraform_data\" \"vm\" {\n  input = var.v\n}\n")
	template["terraform.tfstate"] = "{"
	template["x.auto.tfvars"] = `v = "wrong"`
	template[".terraform/terraform.tfstate"] = "{"
	j := newTrial(t, template)
	state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})).GetState()
	if got := attribute(t, state, "vm", "output"); got != "right" {
		t.Errorf("value %q", got)
	}
}
