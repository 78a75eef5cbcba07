package e2e_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
)

// TestLabSleep puts a laptop to sleep whose direct and relayed sessions carry output. They lose nothing, and the test
// prints after how long each had caught up: the first line has come that the workspace wrote after the laptop woke.
func TestLabSleep(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.host("ws", natEasy, slowlink.Options{})
	l.host("asleep", natEasy, slowlink.Options{})
	l.deploy()
	l.path(t, "asleep", true)
	const sleep = 30 * time.Second
	for path, flags := range map[string][]string{"direct": nil, "relayed": {"--disable-direct-connections"}} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := l.clock(t, "asleep", flags...)
			s.until(time.Now().Add(time.Second))
			// ip executes the program in its own process.
			if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(sleep) // the tested sleep
			woke := time.Now()
			if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			s.until(woke)
			t.Logf("after %s of sleep, the session had caught up after %s", sleep, time.Since(woke).Round(10*time.Millisecond))
			s.until(time.Now().Add(5 * time.Second)) // no late handshake interrupts it for good
			t.Logf("afterwards it was silent for at most %s", s.gap.Round(10*time.Millisecond))
		})
	}
}

// clockSession is an open session in which the workspace tells the time twenty times a second. Its clock is that of
// this machine.
type clockSession struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	last  int           // number of the last line
	at    time.Time     // when it came; zero before the first one
	gap   time.Duration // the longest time between two lines since until was called
}

// clock opens such a session until the test ends.
func (l *lab) clock(t *testing.T, host string, flags ...string) *clockSession {
	t.Helper()
	// Not a shell, which would start a process for each line: a busy machine does not start twenty a second.
	const tell = `python3 -uc 'import itertools, time; [(print(i, time.time_ns()), time.sleep(0.05)) for i in itertools.count(1)]'`
	s := &clockSession{t: t, cmd: l.coder(t.Context(), host, append(append([]string{"ssh"}, flags...), "dev", "--", tell)...)}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = t.Output()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Wait() }) // it was killed with the test's context
	s.lines = bufio.NewScanner(stdout)
	return s
}

// until reads until a line has come that the workspace wrote at a time or later, and fails the test if a line is
// missing or the session ends.
func (s *clockSession) until(wrote time.Time) {
	s.t.Helper()
	for s.gap = 0; s.lines.Scan(); {
		var n int
		var at int64
		if _, err := fmt.Sscan(s.lines.Text(), &n, &at); err != nil || n != s.last+1 {
			s.t.Fatalf("%q came after line %d: %v", s.lines.Text(), s.last, err)
		}
		now := time.Now()
		if !s.at.IsZero() {
			s.gap = max(s.gap, now.Sub(s.at))
		}
		s.last, s.at = n, now
		if !time.Unix(0, at).Before(wrote) {
			return
		}
	}
	s.t.Fatalf("the session ended after line %d: %v", s.last, s.lines.Err())
}
