package e2e_test

import (
	"io"
	"strings"
	"testing"
)

// TestReplacingIsAsked checks that on a terminal an update that would replace a disk names it and asks: "no" changes nothing, and "yes" goes on.
func TestReplacingIsAsked(t *testing.T) {
	t.Parallel()
	d := startServer(t)
	disk := func(zone string) string {
		return "resource \"terraform_data\" \"disk\" {\n  triggers_replace = \"" + zone + "\"\n}\n"
	}
	d.push("disks", disk("fra1"))
	d.coder("create", "dev", "-t", "disks", "-y")
	d.push("disks", disk("muc1"))
	const question = "and their data will be lost:"

	k := d.types(t, "update", "dev")
	k.await(question)
	k.await("terraform_data.disk")
	k.await("It is stopped now. To start it as it was, answer no and run: coder start ada/dev")
	k.await("Continue?")
	k.refuse("nothing was replaced")
	if state := d.coder("state", "pull", "dev"); !strings.Contains(state, "fra1") {
		t.Errorf("after no: %s", state)
	}

	k = d.types(t, "update", "dev")
	k.await(question)
	k.await("Continue?")
	k.line("yes")
	k.end()
	if state := d.coder("state", "pull", "dev"); !strings.Contains(state, "muc1") {
		t.Errorf("after yes: %s", state)
	}
}

// TestReplacingStopIsAsked checks the same for a stop that would replace a disk, here because of the time.
func TestReplacingStopIsAsked(t *testing.T) {
	t.Parallel()
	d := startServer(t)
	// Not plantimestamp(), which is the same for a create and a stop within one second.
	d.push("disks", `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "terraform_data" "disk" {
  triggers_replace = data.coder_workspace.me.transition
}
`)
	d.coder("create", "dev", "-t", "disks", "-y")
	before := d.coder("state", "pull", "dev")
	if _, stderr, err := d.try("stop", "dev", "-y"); err == nil || !strings.Contains(stderr, "terraform_data.disk") {
		t.Errorf("stop without a question: %s, %v", stderr, err)
	}
	if state := d.coder("state", "pull", "dev"); state != before {
		t.Errorf("after a refused stop: %s", state)
	}

	k := d.types(t, "stop", "dev")
	k.await("Stop ada/dev?")
	k.line("yes")
	k.await("terraform_data.disk")
	k.await("Continue?")
	k.refuse("nothing was replaced")
	if state := d.coder("state", "pull", "dev"); state != before {
		t.Errorf("after no: %s", state)
	}

	k = d.types(t, "stop", "dev")
	k.await("Stop ada/dev?")
	k.line("yes")
	k.await("Continue?")
	k.line("yes")
	k.end()
	if state := d.coder("state", "pull", "dev"); state == before {
		t.Error("after yes: the disk is the same")
	}
}

// refuse answers no, and expects the command to fail with a text.
func (k *typist) refuse(want string) {
	k.t.Helper()
	k.line("no")
	rest, _ := io.ReadAll(k.terminal) // ends with EIO
	if err := k.cmd.Wait(); status(err) != 1 || !strings.Contains(string(k.shown)+string(rest), want) {
		k.t.Errorf("ended with %v: %s%s", err, k.shown, rest)
	}
}
