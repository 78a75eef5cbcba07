package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// TestKnownVersion: terraform-exec's question for the version starts no program where the daemon knows the answer.
func TestKnownVersion(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x")
	policy := sandbox.Policy{Exec: "/nonexistent/terraform", Version: "1.2.3", PidFile: name + ".pid"}
	if err := policy.Store(name, self); err != nil {
		t.Fatal(err)
	}
	tf, err := host.NewTerraform(sandbox.Command(name))
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := tf.Version(t.Context(), false)
	if err != nil || found.String() != "1.2.3" {
		t.Errorf("the version: %s, %v", found, err)
	}
	policy.Version = ""
	if err := policy.Store(name, self); err != nil {
		t.Fatal(err)
	}
	if _, err := host.NewTerraform(sandbox.Command(name)); err == nil {
		t.Error("a program that does not exist answered")
	}
}
