package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestTwoServersOnOneDatabase: the second server refuses to start and names the first one, which keeps running. After the first one was
// killed, the second one starts with all data of the first.
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

	err := second.start()
	if err == nil || !strings.HasPrefix(err.Error(), "server ended: exit status 1\n") {
		t.Fatalf("the second server: %v, want exit status 1", err)
	}
	var said []string
	for line := range strings.Lines(second.logText()) {
		if strings.HasPrefix(line, "error: ") {
			said = append(said, line)
		}
	}
	want := regexp.MustCompile(fmt.Sprintf(`^error: Another server uses this database: codermesh server %d on .+\.\n$`, first.cmd.Process.Pid))
	if len(said) != 1 || !want.MatchString(said[0]) {
		t.Errorf("the second server said %q, want one line like %s\n%s", said, want, second.logText())
	}
	if strings.Contains(second.logText(), "panic") {
		t.Errorf("the second server's log:\n%s", second.logText())
	}
	talk.echo(2)
	first.coder("stop", "dev", "-y")
	first.coder("start", "dev", "-y")

	if err := first.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := second.start(); err != nil {
		t.Fatal(err)
	}
	if second.token, err = signIn(second.url(), "ada@example.com"); err != nil {
		t.Fatal(err)
	}
	if got := second.workspace("dev").LatestBuild.Status; got != "running" {
		t.Errorf("dev on the second server is %s", got)
	}
}
