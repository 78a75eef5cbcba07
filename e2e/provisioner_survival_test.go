package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// link is the network between a daemon and its server: a TCP proxy that can be cut like a cable that is pulled, without notifying
// either side. The daemon must not have another path (--disable-direct-connections).
type link struct {
	t        *testing.T
	listener net.Listener
	to       string
	wait     sync.WaitGroup

	mu     sync.Mutex
	open   chan struct{} // closed while the link is up
	closed chan struct{}
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, listener: listener, to: to, open: make(chan struct{}), closed: make(chan struct{})}
	close(l.open)
	l.wait.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.wait.Go(func() { l.carry(conn) })
		}
	})
	t.Cleanup(func() {
		close(l.closed)
		listener.Close()
		l.wait.Wait()
	})
	return l
}

// cut blocks all data until mend.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.open)
}

// up waits until the link is up. It returns false when the test is over.
func (l *link) up() bool {
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	select {
	case <-open:
		return true
	case <-l.closed:
		return false
	}
}

func (l *link) carry(near net.Conn) {
	defer near.Close()
	if !l.up() {
		return
	}
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		return // the server is away
	}
	defer far.Close()
	var both sync.WaitGroup
	half := func(to, from net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if !l.up() {
				break
			}
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				break
			}
		}
		to.Close()
		from.Close()
	}
	both.Go(func() { half(near, far) })
	both.Go(func() { half(far, near) })
	over := make(chan struct{})
	go func() { both.Wait(); close(over) }()
	select {
	case <-over:
	case <-l.closed:
		near.Close()
		far.Close()
		<-over
	}
}

func (l *link) url() string { return "http://" + l.listener.Addr().String() }

// TestProvisionerServerKilled checks that a build continues and loses nothing while its server is killed and restarted.
func TestProvisionerServerKilled(t *testing.T) {
	t.Parallel()
	d := external(t)
	p := d.provisioner("rack")
	d.pushChain("chain", "")

	// The server is killed in the middle of the build, and is back before its end.
	create := d.background("create", "back", "-t", "chain", "-y")
	d.inFlight("back")
	if err := d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.release("back")
	if err := <-create.done; err != nil {
		t.Errorf("create: %v\n%s", err, create.output.String())
	}
	d.expectState("back", "succeeded", "first second third")
	if log := d.coder("logs", "back"); strings.Count(log, "Creation complete") != 3 {
		t.Errorf("the build's log has not each line once:\n%s", log)
	}

	// The server is away when the build ends: the result waits on the daemon's disk.
	create = d.background("create", "away", "-t", "chain", "-y")
	d.inFlight("away")
	if err := d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := strings.Count(p.text(), `msg="job ended"`)
	d.release("away")
	p.says(`msg="job ended"`, ended+1)
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	if err := <-create.done; err != nil {
		t.Errorf("create: %v\n%s", err, create.output.String())
	}
	t.Logf("the user saw the end of the build %s after the server was back", time.Since(back).Round(10*time.Millisecond))
	d.expectState("away", "succeeded", "first second third")
	for _, workspace := range []string{"back", "away"} {
		if got := d.made(workspace); got != "first second third" {
			t.Errorf("%s: made %q, want each resource once", workspace, got)
		}
	}
}

// TestProvisionerKilled: a daemon that is killed in the middle of a build loses at most the resource in flight: the build fails within
// seconds and reports the reason, and the next one continues from its state. The same applies when the server is killed with it, and
// when only the daemon's folder is left.
func TestProvisionerKilled(t *testing.T) {
	t.Parallel()
	d := external(t)
	p := d.provisioner("rack")
	d.pushChain("chain", "")

	said := func(w workspaceJSON) {
		t.Helper()
		message := w.LatestBuild.Job.Error
		if !strings.Contains(message, "was killed while it was starting the workspace") || !strings.Contains(message, "terraform_data.second.") {
			t.Errorf("the build says %q, want that the provisioner was killed, and what was in flight", message)
		}
	}

	// The daemon is not restarted: its successor reports how the build ended.
	create := d.background("create", "successor", "-t", "chain", "-y")
	d.inFlight("successor")
	killed := time.Now()
	p.kill()
	w := d.expectState("successor", "failed", "first")
	t.Logf("the build ended %s after its provisioner was killed", time.Since(killed))
	said(w)
	if err := <-create.done; err == nil {
		t.Error("coder create: got success, want the failure of its build")
	}
	testwait.Until(t, "the successor has left", func() error { return testwait.Len(p.successors(), 0) })

	// Server and daemon are killed together, and the daemon is started again at once.
	d.release("successor")
	p.start()
	if show := d.coder("show", "successor"); !strings.Contains(show, "outside of the Terraform state: terraform_data.second") && !strings.Contains(show, "by the next build: terraform_data.second") {
		t.Errorf("coder show does not name what was in flight:\n%s", show)
	}
	d.coder("start", "successor", "-y")
	if log := d.coder("logs", "successor"); !strings.Contains(log, "may be made a second time: terraform_data.second.") && !strings.Contains(log, "They are made anew: terraform_data.second.") {
		t.Errorf("the next start does not name what may be there twice:\n%s", log)
	}
	if show := d.coder("show", "successor"); strings.Contains(show, "May exist") || strings.Contains(show, "Incomplete, replaced") {
		t.Errorf("coder show still names it after a start that succeeded:\n%s", show)
	}
	d.expectState("successor", "succeeded", "first second third")
	if got := d.made("successor"); got != "first second third" {
		t.Errorf("made %q, want each resource once", got)
	}
	d.background("create", "both", "-t", "chain", "-y")
	d.inFlight("both")
	if err := d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.kill()
	p.begin()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	said(d.expectState("both", "failed", "first"))
	d.coder("delete", "both", "-y")

	// The daemon and its successor are killed, as when a machine dies; the daemon comes back.
	p.says("provisioner started", 3)
	d.background("create", "all", "-t", "chain", "-y")
	d.inFlight("all")
	for _, pid := range p.successors() {
		signal(t, pid, syscall.SIGKILL)
	}
	p.kill()
	p.start()
	said(d.expectState("all", "failed", "first"))
	d.release("all")
	d.coder("start", "all", "-y")
	d.expectState("all", "succeeded", "first second third")
	if got := d.made("all"); got != "first second third" {
		t.Errorf("made %q, want each resource once", got)
	}
	d.coder("delete", "all", "-y")
}

// TestProvisionerLinkDown: a link that is down for less than the grace period costs nothing. If it is down for longer, the daemon ends
// its build, so that no two builds work on one state: the build fails with the reason and the state it reached. A daemon that stays
// away loses its lease, and the server refuses its later messages.
func TestProvisionerLinkDown(t *testing.T) {
	t.Parallel()
	d := external(t)
	cable := newLink(t, "127.0.0.1:"+d.port)
	far := d.provisioner("far", "--url", cable.url(), "--disable-direct-connections", "--tag", "where=far")
	d.pushChain("chain", "", "--provisioner-tag", "where=far")

	// This daemon dies with its successor, as when a machine dies, and stays away until its lease has ended.
	dead := d.provisioner("dead", "--tag", "where=grave")
	d.pushChain("grave", "", "--provisioner-tag", "where=grave")
	d.background("create", "lost", "-t", "grave", "-y")
	d.inFlight("lost")
	for _, pid := range dead.successors() {
		signal(t, pid, syscall.SIGKILL)
	}
	dead.kill()

	create := d.background("create", "short", "-t", "chain", "-y")
	d.inFlight("short")
	cable.cut()
	ended := strings.Count(far.text(), `msg="job ended"`)
	d.release("short")
	far.says(`msg="job ended"`, ended+1)
	// Both sides notice that the other is silent.
	far.says("the server no longer answers", 1)
	testwait.Until(t, "the server has noticed", contains(d.fullLog, `msg="provisioner disconnected" peer=far`))
	if got := d.workspace("short").LatestBuild.Job.Status; got != "running" {
		t.Errorf("while the link is down: %s, want running", got)
	}
	cable.mend()
	mended := time.Now()
	if err := <-create.done; err != nil {
		t.Errorf("create: %v\n%s", err, create.output.String())
	}
	t.Logf("the user saw the end of the build %s after the link was back", time.Since(mended).Round(10*time.Millisecond))
	d.expectState("short", "succeeded", "first second third")

	// From here on the grace period is short.
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.args = append(d.args, "--provisioner-grace", "6s")
	before := len(d.fullLog())
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the daemon is back", func() error { return testwait.Contains(d.fullLog()[before:], `msg="provisioner connected" peer=far`) })

	ended = strings.Count(far.text(), `msg="job ended"`)
	d.background("create", "long", "-t", "chain", "-y")
	d.inFlight("long")
	cable.cut()
	far.says(`msg="job ended"`, ended+1)
	cable.mend()
	w := d.expectState("long", "failed", "first second")
	if message := w.LatestBuild.Job.Error; !strings.Contains(message, "The server was away for longer than 6s") {
		t.Errorf("the build says %q", message)
	}
	d.release("long")
	d.coder("start", "long", "-y")
	d.expectState("long", "succeeded", "first second third")

	w = d.expectState("lost", "failed", "first")
	if message := w.LatestBuild.Job.Error; !strings.Contains(message, "The provisioner has been offline for 6s") {
		t.Errorf("the build says %q", message)
	}
	near := d.provisioner("near", "--tag", "where=grave")
	d.release("lost")
	d.coder("start", "lost", "-y")
	d.expectState("lost", "succeeded", "first second third")
	dead.begin()
	dead.says("lease lost with undelivered events", 1)
	if aside, _ := filepath.Glob(filepath.Join(d.dir, "config-provisioner-dead", "provisionerd", "dead", "journal", "*.revoked")); len(aside) != 1 {
		t.Errorf("journals set aside: %v, want one", aside)
	}
	d.expectState("lost", "succeeded", "first second third")
	if got := near.text(); strings.Contains(got, "lease lost") {
		t.Errorf("the daemon that has the workspace lost something:\n%s", got)
	}
}

// fullLog returns everything that the server's processes logged.
func (s *server) fullLog() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
	return string(text)
}
