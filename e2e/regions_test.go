package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// region starts a region proxy on a host with a public address, and returns its process.
func (l *lab) region(program, name, host, address string) *exec.Cmd {
	l.t.Helper()
	token := strings.TrimSpace(l.d.coder("wsproxy", "create", name))
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.t.Context()))
	cmd := l.program(ctx, host, program, "wsproxy", "server", "--primary-access-url", l.d.url(), "--access-url", "http://"+address+":3001",
		"--http-address", "0.0.0.0:3001")
	cmd.Env = append(cmd.Env, "CODER_PROXY_SESSION_TOKEN="+token)
	cmd.Stdout, cmd.Stderr = l.t.Output(), l.t.Output()
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		cancel()
		cmd.Wait()
	})
	testwait.Until(l.t, "region "+name+" is ok", func() error {
		list := l.d.coder("wsproxy", "ls")
		for line := range strings.Lines(list) {
			if f := strings.Fields(line); len(f) > 0 && f[0] == name && strings.Contains(line, " ok") {
				return nil
			}
		}
		return fmt.Errorf("the regions:\n%s", list)
	})
	return cmd
}

// relayed waits until pings from a host are relayed by a region.
func (l *lab) relayed(t *testing.T, host, region string) {
	t.Helper()
	testwait.Until(t, "the pings are relayed by "+region, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), settle)
		defer cancel()
		out, err := l.coder(ctx, host, "ping", "dev", "-n", "3").CombinedOutput()
		return testwait.Unless(err == nil && strings.Contains(string(out), fmt.Sprintf("relay %q", region)), "%s (%v)", out, err)
	})
}

// continues reads n numbers after a disturbance, and prints the longest time between two of them.
func (s *labSession) continues(what string, n int) {
	s.t.Helper()
	var longest time.Duration
	for at := time.Now(); n > 0; n-- {
		s.until(s.last + 1)
		now := time.Now()
		longest, at = max(longest, now.Sub(at)), now
	}
	s.t.Logf("%s: the session was silent for at most %s", what, longest.Round(10*time.Millisecond))
}

// TestLabRegions has regions at round trips of 20, 80 and 200 ms from a workspace and a laptop that cannot reach each other directly; the
// farthest is the server, and the nearest runs the slim binary. A session uses the nearest. It outlives a server that it cannot reach any more, and a region that is killed.
func TestLabRegions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.far(slowlink.Options{Delay: 98 * time.Millisecond})
	near, _ := l.publicHost("near", slowlink.Options{Delay: 8 * time.Millisecond})
	mid, _ := l.publicHost("mid", slowlink.Options{Delay: 38 * time.Millisecond})
	l.host("ws", natHard, slowlink.Options{Delay: 2 * time.Millisecond})
	l.host("laptop", natHard, slowlink.Options{Delay: 2 * time.Millisecond})
	l.deploy()
	closest := l.region(slim, "near", "near", near)
	l.region(coder, "mid", "mid", mid)
	l.relayed(t, "laptop", "near")

	before := l.carried("srv")
	l.bytes(t, "laptop")
	if n := l.carried("srv") - before; n > 1<<20 {
		t.Errorf("the server's wire carried %d bytes of a session of 4 MiB between a laptop and a workspace that are near a region", n)
	}

	const to = 440 // 22 s
	s := l.session(t, "laptop", to)
	l.in("near", "nft", `add table ip far
add chain ip far out { type filter hook output priority 0; }
add rule ip far out ip daddr `+l.server+` drop`)
	s.continues("a region that cannot reach the server", 200)
	l.in("near", "nft", "delete table ip far")
	if err := closest.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.continues("a region that was killed", 200)
	s.end(to)
	l.relayed(t, "laptop", "mid")
}
