package terraform_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// tokenReader reads its owner's session token, and waits.
const tokenReader = `
data "coder_workspace_owner" "me" {}
resource "terraform_data" "secret" {
  triggers_replace = sha256(data.coder_workspace_owner.me.session_token)
}
resource "terraform_data" "wait" {
  depends_on = [terraform_data.secret]
  provisioner "local-exec" {
    command = "echo victim-is-at=$TMPDIR; while [ ! -e gate ]; do sleep 0.1; done"
  }
}
`

// TestOtherJobsWorker runs a job that attaches a Terraform of its own to the provider worker of a job in another slot, of the same account,
// while the owner's job reads its session token.
func TestOtherJobsWorker(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(o *terraform.Options) { o.Slots = 2 })
	victim := newTrial(t, files(tokenReader))
	victim.slot = 1
	at := make(chan string, 1)
	victim.sink.onLine = func(line string) {
		if _, dir, ok := strings.Cut(line, "victim-is-at="); ok && strings.HasPrefix(dir, "/") {
			select {
			case at <- dir:
			default:
			}
		}
	}
	ended := make(chan *provisionerpb.Result, 1)
	go func() { ended <- victim.build(e, &provisionerpb.WorkspaceBuild{Transition: start}) }()
	var dir string
	select {
	case dir = <-at:
	case r := <-ended:
		t.Fatalf("the victim ended: %s\n%s", r.GetError(), victim.sink.text())
	}
	// In the attacker's own job the same attack works, which shows that the method is right.
	attacker := newTrial(t, map[string]string{"evil.sh": `
attach() {
  echo "attaching to $1"
  sleep 600 >/dev/null 2>&1 & # Terraform gives up when this process ends, and kills it when nothing listens
  PLUGIN_PROTOCOL_VERSIONS=5 TF_REATTACH_PROVIDERS='{"coder/coder":{"Protocol":"grpc","ProtocolVersion":5,"Pid":'$!',"Test":true,"Addr":{"Network":"unix","String":"'$1'"}}}' \
    $TERRAFORM apply -auto-approve -no-color 2>&1 | tail -12
  kill $! 2>/dev/null
}
own=$TMPDIR/provider
d=$(mktemp -d); cd $d
cat >main.tf <<'X'
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace_owner" "me" {}
output "stolen" { value = nonsensitive("name=${data.coder_workspace_owner.me.name} token=${data.coder_workspace_owner.me.session_token}") }
X
attach $own
attach ` + dir + `/provider
for sock in $(grep -o '/[^ ]*/s1/[^ ]*' /proc/net/unix | sort -u); do attach $sock; done
echo attack-ended
`, "main.tf": files(`
variable "terraform" {}
resource "terraform_data" "a" {
  provisioner "local-exec" {
    command     = "sh ./evil.sh"
    environment = { TERRAFORM = var.terraform }
  }
}
`)["main.tf"]})
	metadata := metadata()
	metadata.OwnerName, metadata.OwnerSessionToken = "eve", ""
	result := attacker.build(e, &provisionerpb.WorkspaceBuild{
		Transition: start, Metadata: metadata, Variables: []*provisionerpb.VariableValue{{Name: "terraform", Value: terraformPath(t)}},
	})
	log := attacker.sink.text()
	if result.GetError() != "" || !strings.Contains(log, "attack-ended") || !strings.Contains(log, "attaching to "+dir) || !strings.Contains(log, "name=eve") {
		t.Errorf("the attack did not run: %s\n%s", result.GetError(), log)
	}
	if strings.Contains(log, "SESSION-TOKEN-SECRET") || strings.Contains(log, "name=ann") {
		t.Errorf("the attacker's log has the victim's session token:\n%s", log)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "w", "gate"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ok(t, victim, <-ended)
}

// TestProviderIsNeededLate makes a build use the coder provider after it has been attached to the worker for more than a second, which is
// how often Terraform checks whether the process of an attached provider still exists.
func TestProviderIsNeededLate(t *testing.T) {
	modes := []string{"auto", "none"}
	if os.Geteuid() == 0 {
		modes = append(modes, "accounts alone")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			e := newExecutor(t, func(o *terraform.Options) {
				switch mode {
				case "none":
					o.Isolation = "none"
				case "accounts alone":
					*o = withoutBubblewrap(t)
				}
			})
			t.Log(e.Isolation())
			j := newTrial(t, files(`
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "machine" {
  input = coder_agent.main.id
  provisioner "local-exec" {
    command = "sleep 3"
  }
}
resource "coder_metadata" "machine" {
  resource_id = terraform_data.machine.id
  item {
    key   = "size"
    value = "big"
  }
}
`))
			built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
			if got := built.GetResources()[0].GetMetadata(); len(got) != 1 {
				t.Errorf("metadata %v", got)
			}
		})
	}
}

// terraformPath returns the path of the program that the tests run.
func terraformPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
				return filepath.Join(dir, name)
			}
		}
	}
	t.Fatal("neither terraform nor tofu is on PATH")
	return ""
}
