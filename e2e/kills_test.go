package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// flow is a session that carries numbered lines in both directions all the time.
type flow struct {
	*talk
	name string
	stop chan struct{}
	sent chan int   // how many lines were sent, once
	done chan error // nil if each line was answered once and in order

	mu   sync.Mutex
	seen int           // lines that were answered
	last time.Time     // when the last one was
	gap  time.Duration // the longest time without an answer since quiet was called
}

// flow begins to send lines in a session.
func (s *talk) flow(name string) *flow {
	f := &flow{talk: s, name: name, stop: make(chan struct{}), sent: make(chan int, 1), done: make(chan error, 1), last: time.Now()}
	go func() {
		n := 0
		defer func() {
			f.sent <- n
			f.stdin.Close()
		}()
		for tick := time.Tick(25 * time.Millisecond); ; n++ { // at five times the pace, the two sessions took a quarter of a processor
			select {
			case <-f.stop:
				return
			case <-tick:
			}
			if _, err := fmt.Fprintf(f.stdin, "%d\n", n); err != nil {
				return
			}
		}
	}()
	go func() { f.done <- f.read() }()
	return f
}

func (f *flow) read() error {
	for n := 0; f.lines.Scan(); n++ {
		if got, want := f.lines.Text(), fmt.Sprintf("got %d", n); got != want {
			return fmt.Errorf("line %d is %q", n, got)
		}
		f.mu.Lock()
		f.gap = max(f.gap, time.Since(f.last))
		f.seen, f.last = n+1, time.Now()
		f.mu.Unlock()
	}
	return f.lines.Err()
}

// quiet returns the longest time without an answer since its last call, after waiting for more lines.
func (f *flow) quiet() time.Duration {
	f.t.Helper()
	f.mu.Lock()
	before := f.seen
	f.mu.Unlock()
	testwait.Until(f.t, "the "+f.name+" session goes on", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return testwait.Unless(f.seen > before+20, "%d lines have come, %d before", f.seen, before)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	gap := f.gap
	f.gap = 0
	return gap
}

// finish ends the session and fails the test unless every line was answered.
func (f *flow) finish() {
	f.t.Helper()
	close(f.stop)
	sent := <-f.sent
	if err := <-f.done; err != nil {
		f.t.Errorf("%s session: %v", f.name, err)
	}
	if err := f.cmd.Wait(); err != nil || f.seen != sent {
		f.t.Errorf("%s session: %d of %d lines were answered, %v", f.name, f.seen, sent, err)
	}
}

// TestServersAreKilled kills each of three servers in turn, while a direct and a relayed session carry data and a build runs on an external
// provisioner. The sessions lose nothing, the build runs once, and the command that follows it shows each line once.
func TestServersAreKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, "--provisioner-daemons=0")
	l := f.load().withApps()
	for i, victim := range f.servers {
		l.during(fmt.Sprint("kill ", i), func() {
			killed := time.Now()
			if err := victim.end(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				t.Logf("back at another server: the agent after %s, the provisioner after %s",
					f.connectedAfter(`msg="agent connected"`, killed, victim), f.connectedAfter(`msg="provisioner connected"`, killed, victim))
			}
		})
		f.startServer(victim)
	}
	l.end()
}

// load is what goes on while servers come and go: a direct and a relayed session, a terminal, an app and a stream of
// events in a page, an external provisioner, and requests.
type load struct {
	f               *fleet
	direct, relayed *flow
	terminal        *terminalPage
	app             *appPage      // nil without apps, as those that follow
	regional        *terminalPage // at a region proxy, which no server's end may cut
	regionalApp     *appPage      // as regional
	events          *eventsPage
	released        *eventsMark // when the build was released; nil before
	builds          int
	asking          bool
	stop            chan struct{}
	asked           chan error // the first request that failed, if requests are sent
}

// load begins at the first server, so that what happens to it concerns everything.
func (f *fleet) load() *load {
	f.t.Helper()
	f.front.pin("127.0.0.1:" + f.servers[0].port)
	f.provisioner("rack")
	f.pushProcess()
	f.pushChain("chain", "")
	f.coder("create", "dev", "-t", "process", "-y")
	l := &load{f: f, direct: f.talk("dev").flow("direct"), relayed: f.lines("dev", "--disable-direct-connections").flow("relayed")}
	l.stop, l.asked = make(chan struct{}), make(chan error, 1)
	l.terminal, l.events = f.terminalPage("dev"), f.eventsPage()
	f.front.pin("")
	return l
}

// withApps also opens an app through the balancer, and a terminal and the app at a region proxy.
func (l *load) withApps() *load {
	port := l.f.echoApp()
	l.f.front.pin("127.0.0.1:" + l.f.servers[0].port)
	l.app = l.f.appPage("dev", port)
	at, _ := l.f.runRegion("eu")
	l.regional = l.f.regionTerminalPage(at, "dev")
	l.regionalApp = l.f.regionAppPage(at, "dev", port)
	l.f.front.pin("")
	return l
}

// requests begins to send requests, none of which may fail.
func (l *load) requests() *load {
	l.asking = true
	go func() { l.asked <- l.ask() }()
	return l
}

// ask requests the user again and again, on connections that stay open, and returns the first failure.
func (l *load) ask() error {
	for tick := time.Tick(20 * time.Millisecond); ; {
		select {
		case <-l.stop:
			return nil
		case <-tick:
		}
		if err := call("GET", l.f.url()+"/api/v2/users/me", l.f.token, nil, nil); err != nil {
			return err
		}
	}
}

// building returns the name of the workspace whose build waits.
func (l *load) building() string { return fmt.Sprint("build", l.builds) }

// release lets the build continue.
func (l *load) release() {
	mark := l.events.mark()
	l.released = &mark
	l.f.release(l.building())
}

// during runs change while a build waits in the middle, and checks that the build runs once, its command follows it to the end, and the
// sessions go on.
func (l *load) during(what string, change func()) {
	f := l.f
	f.t.Helper()
	l.builds++
	name := l.building()
	l.direct.quiet()
	l.relayed.quiet()
	create := f.background("create", name, "-t", "chain", "-y")
	f.inFlight(name)
	change()
	f.t.Logf("%s: the direct session was silent for %s, the relayed one for %s", what, l.direct.quiet(), l.relayed.quiet())
	l.terminal.lives(strings.ReplaceAll(what, " ", "-"))
	if l.app != nil {
		l.regional.stays(strings.ReplaceAll(what, " ", "-"))
		through, region := l.app.lives(what), l.regionalApp.lives(what)
		f.t.Logf("%s: the app was silent for %s through the balancer, for %s at the region", what, through, region)
	}
	if l.released == nil {
		l.release()
	}
	if err := <-create.done; err != nil {
		f.t.Errorf("%s: create %s: %v\n%s", what, name, err, create.output.String())
	}
	l.events.learns(f.t, what, f.workspace(name).ID, *l.released)
	l.released = nil
	f.expectState(name, "succeeded", "first second third")
	if got := f.made(name); got != "first second third" {
		f.t.Errorf("%s: %s made %q, want each resource once", what, name, got)
	}
	for which, log := range map[string]string{"followed": create.output.String(), "stored": f.coder("logs", name)} {
		if strings.Count(log, "Creation complete") != 3 {
			f.t.Errorf("%s: the %s log of %s has not each line once:\n%s", what, which, name, log)
		}
	}
	if out := f.coder("ssh", "dev", "--", "echo back"); out != "back\n" {
		f.t.Errorf("%s: a new session: got %q", what, out)
	}
}

// end ends the load and fails the test if something was lost.
func (l *load) end() {
	l.f.t.Helper()
	close(l.stop)
	if l.asking {
		if err := <-l.asked; err != nil {
			l.f.t.Errorf("a request failed: %v", err)
		}
	}
	l.events.heard(l.f.t)
	l.direct.finish()
	l.relayed.finish()
	if l.app != nil {
		l.app.end(false)
		l.regionalApp.end(true)
	}
}

// restart stops a server with SIGTERM and starts it again.
func (f *fleet) restart(s *server) {
	f.t.Helper()
	if err := s.end(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	f.startServer(s)
}

// TestServersAreRestarted stops each of three servers in turn with SIGTERM and starts it again. Sessions and builds go on, no request fails.
func TestServersAreRestarted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, "--provisioner-daemons=0", "--drain-delay=1s")
	l := f.load().withApps().requests()
	for i, s := range f.servers {
		l.during(fmt.Sprint("restart ", i), func() { f.restart(s) })
	}
	l.end()
}

// TestServersWithProvisionersAreKilled kills a server whose built-in provisioner runs one of several queued builds. The others run on the
// remaining servers, each once. The killed server's build fails when that server is back, and the next one continues from its state.
func TestServersWithProvisionersAreKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, "--provisioner-daemons=1")
	f.pushChain("chain", "")
	creates := map[string]*run{}
	for i := range 6 {
		name := fmt.Sprint("build", i)
		creates[name] = f.background("create", name, "-t", "chain", "-y")
	}
	running := func() (names []string) {
		for name := range creates {
			// The server knows of its first resource: what was made and not reported yet may be made a second time.
			if f.made(name) != "" && f.state(f.workspace(name)) == "first" {
				names = append(names, name)
			}
		}
		return names
	}
	testwait.Until(t, "each server runs a build", func() error { return testwait.Len(running(), 3) })
	victim := f.servers[0]
	if err := victim.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for name := range creates {
		f.release(name)
	}
	testwait.Until(t, "the other servers run the queue", func() error {
		jobs := map[string][]string{}
		for name := range creates {
			status := f.workspace(name).LatestBuild.Job.Status
			jobs[status] = append(jobs[status], name)
		}
		return testwait.Unless(len(jobs["succeeded"]) == 5, "%v, want five succeeded", jobs)
	})
	t.Logf("the other builds had succeeded %s after the kill", time.Since(killed).Round(10*time.Millisecond))
	f.startServer(victim)
	failed := 0
	for name, create := range creates {
		w := f.ended(name)
		err := <-create.done
		if w.LatestBuild.Job.Status == "succeeded" {
			if err != nil {
				t.Errorf("create %s: %v\n%s", name, err, create.output.String())
			}
		} else {
			failed++
			if got := f.made(name); err == nil || w.LatestBuild.Job.Error == "" || strings.Contains(got, "third") {
				t.Errorf("%s made %q and failed with %q, create with %v; want a reason", name, got, w.LatestBuild.Job.Error, err)
			}
			f.coder("start", name, "-y")
		}
		f.expectState(name, "succeeded", "first second third")
		got := f.made(name)
		if w.LatestBuild.Job.Status == "failed" {
			got = strings.Replace(got, "second second", "second", 1) // the killed server's last shell command may have survived it
		}
		if got != "first second third" {
			t.Errorf("%s: made %q, want each resource once", name, got)
		}
	}
	if failed != 1 {
		t.Errorf("%d builds failed, want the killed server's only", failed)
	}
}
