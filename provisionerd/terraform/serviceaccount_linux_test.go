package terraform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// TestServiceAccount checks that jobs use a pod's service account only if the operator names the variable that leads to the cluster.
func TestServiceAccount(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "cluster.example.com")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	home, err := os.UserHomeDir() // no folder that jobs read anyway
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp(filepath.Dir(home), "cmaccount")
	if err != nil {
		base, err = os.MkdirTemp(home, "cmaccount")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	// As the kubelet lays it out: links to a folder that it replaces.
	dir := filepath.Join(base, "serviceaccount")
	for _, made := range []error{
		os.Chmod(base, 0o755), os.MkdirAll(filepath.Join(dir, "..first"), 0o755), os.WriteFile(filepath.Join(dir, "..first", "token"), []byte("TOKEN-OF-THE-POD"), 0o644),
		os.Symlink("..first", filepath.Join(dir, "..data")), os.Symlink("..data/token", filepath.Join(dir, "token")), os.Symlink("serviceaccount", filepath.Join(base, "link")),
		os.WriteFile(filepath.Join(base, "other"), []byte("SECRET-BESIDE-IT"), 0o644),
	} {
		if made != nil {
			t.Fatal(made)
		}
	}
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("named %t", named), func(t *testing.T) {
			e := newExecutor(t, func(o *terraform.Options) {
				if o.ServiceAccount = filepath.Join(base, "link"); named {
					o.ExtraEnv = []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
				}
			})
			j := newTrial(t, files(fmt.Sprintf(`
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "echo at $KUBERNETES_SERVICE_HOST; cat %[1]s/token; cat %[2]s/other; touch %[1]s/mine && echo $((40+2))-written; true"
  }
}
`, dir, base)))
			ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
			log := j.sink.text()
			if got := strings.Contains(log, "TOKEN-OF-THE-POD") && strings.Contains(log, "at cluster.example.com"); got != named {
				t.Errorf("the job uses the account: %t, want %t\n%s", got, named, log)
			}
			if !named && (strings.Contains(log, "TOKEN-OF-THE-POD") || strings.Contains(log, "cluster.example.com")) {
				t.Errorf("the job finds the cluster or its token:\n%s", log)
			}
			if strings.Contains(log, "SECRET-BESIDE-IT") || strings.Contains(log, "42-written") {
				t.Errorf("the job reads or writes more:\n%s", log)
			}
		})
	}
}
