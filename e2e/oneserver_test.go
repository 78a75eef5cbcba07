package e2e_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTwoServersOnOneDatabase: sessions through either server reach a workspace whose agent is connected to the first one. After the first
// one was killed, the second one goes on with all data.
func TestTwoServersOnOneDatabase(t *testing.T) {
	t.Parallel()
	db := externalDatabase(t)()
	t.Cleanup(func() { stopDatabase(t, db) })
	keys := filepath.Join(t.TempDir(), "keys")
	args := []string{"--postgres-url", db.URL(), "--state-encryption-key-file", keys, "--provisioner-isolation", "none"}
	if err := os.WriteFile(keys, []byte("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := prepare(t, args...), prepare(t, args...)
	first.begin()
	first.pushProcess()
	first.coder("create", "dev", "-t", "process", "-y")
	talk := first.talk("dev")
	talk.echo(1)

	if err := second.start(); err != nil {
		t.Fatal(err)
	}
	var err error
	if second.token, err = signIn(second.url(), "ada@example.com"); err != nil {
		t.Fatal(err)
	}
	second.coder("login", second.url(), "--email", "ada@example.com", "--password", password)
	second.talk("dev").echo(1)
	talk.echo(2)
	first.coder("stop", "dev", "-y")
	first.coder("start", "dev", "-y")

	if err := first.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := second.workspace("dev").LatestBuild.Status; got != "running" {
		t.Errorf("dev on the second server is %s", got)
	}
}
