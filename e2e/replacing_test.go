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
	k.await("Continue?")
	k.line("no")
	rest, _ := io.ReadAll(k.terminal) // ends with EIO
	if err := k.cmd.Wait(); status(err) != 1 || !strings.Contains(string(k.shown)+string(rest), "nothing was replaced") {
		t.Errorf("update ended with %v: %s%s", err, k.shown, rest)
	}
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
