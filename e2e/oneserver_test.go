package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/testwait"
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

// TestServerThatNeverComesBack kills one of two servers while its built-in provisioner runs two builds. The other server says within seconds
// that the provisioner is gone, ends one build at once when it is canceled, and lets the other one fail within half a minute. The next
// build of a workspace continues from the state of the one that failed.
func TestServerThatNeverComesBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, "--provisioner-daemons=2")
	f.pushChain("chain", "")
	if err := f.servers[1].end(syscall.SIGTERM); err != nil { // so that the other one gets both
		t.Fatal(err)
	}
	creates := map[string]*run{"canceled": f.background("create", "canceled", "-t", "chain", "-y"), "left": f.background("create", "left", "-t", "chain", "-y")}
	for name := range creates {
		testwait.Until(t, name+" is being built", func() error { return testwait.Unless(f.made(name) != "", "nothing is made") })
	}
	f.startServer(f.servers[1])
	killed := time.Now()
	if err := f.servers[0].end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for name := range creates {
		testwait.Until(t, name+" says that its provisioner is offline", func() error {
			reason := f.workspace(name).LatestBuild.Job.WaitingReason
			return testwait.Unless(strings.Contains(reason, "has been offline since"), "it waits for %q", reason)
		})
		t.Logf("%s says so %s after the kill", name, time.Since(killed).Round(100*time.Millisecond))
	}
	if out := f.coder("show", "left"); !strings.Contains(out, "has been offline since") {
		t.Errorf("show prints\n%s", out)
	}
	if out := f.coder("logs", "left"); !strings.Contains(out, "has been offline since") {
		t.Errorf("logs prints\n%s", out)
	}
	client := f.client()
	if err := client.CancelBuild(t.Context(), uuid.MustParse(f.workspace("canceled").LatestBuild.ID)); err != nil {
		t.Fatal(err)
	}
	if job := f.workspace("canceled").LatestBuild.Job; job.Status != "canceled" {
		t.Errorf("the canceled job is %s: %s", job.Status, job.Error)
	}
	w := f.ended("left")
	t.Logf("the build ended %s after the kill", time.Since(killed).Round(100*time.Millisecond))
	if w.LatestBuild.Job.Status != "failed" || !strings.Contains(w.LatestBuild.Job.Error, "ended with its server") {
		t.Errorf("the build is %s: %s", w.LatestBuild.Job.Status, w.LatestBuild.Job.Error)
	}
	for name, create := range creates {
		if err := <-create.done; err == nil || !strings.Contains(create.output.String(), "has been offline since") {
			t.Errorf("create %s: %v\n%s", name, err, create.output.String())
		}
	}
	f.release("left")
	f.coder("start", "left", "-y")
}
