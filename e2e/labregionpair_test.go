package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
)

// TestLabProcessOfRegionIsKilled kills the process of two that relays a session between a laptop and a workspace which
// are near the region and cannot reach each other directly. The session goes on, and the other process relays then.
func TestLabProcessOfRegionIsKilled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.far(slowlink.Options{Delay: 98 * time.Millisecond})
	near, _ := l.publicHost("near", slowlink.Options{Delay: 8 * time.Millisecond})
	l.host("ws", natHard, slowlink.Options{Delay: 2 * time.Millisecond})
	l.host("laptop", natHard, slowlink.Options{Delay: 2 * time.Millisecond})
	l.deploy()
	p := l.regionPair("near", near)
	l.relayed(t, "laptop", "near")

	const to = 240 // 12 s
	s := l.session(t, "laptop", to)
	p.kill[0]()
	s.continues("the process that relayed is killed", 200)
	s.end(to)
	p.says(1, regionServes, 1)
	l.relayed(t, "laptop", "near")
}

// regionPair runs a region of two processes and nginx on a host with a public address.
func (l *lab) regionPair(host, address string) *regionPair {
	t := l.t
	t.Helper()
	p := &regionPair{t: t, at: "http://" + address + ":3000"}
	token := strings.TrimSpace(l.d.coder("wsproxy", "create", host))
	var servers []string
	for i := range p.run {
		at := fmt.Sprintf("127.0.0.1:300%d", i+1)
		servers = append(servers, at)
		p.logs[i] = filepath.Join(l.d.dir, fmt.Sprintf("%s-%d.log", host, i))
		p.run[i] = func() func() {
			t.Helper()
			log, err := os.OpenFile(p.logs[i], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			ctx, kill := context.WithCancel(context.WithoutCancel(t.Context()))
			cmd := l.program(ctx, host, slim, "wsproxy", "server", "--primary-access-url", l.d.url(),
				"--access-url", p.at, "--http-address", at, "--stun-address", fmt.Sprint("0.0.0.0:", 3478+i))
			cmd.Env, cmd.Stdout, cmd.Stderr = append(cmd.Env, "CODER_PROXY_SESSION_TOKEN="+token), log, log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				kill()
				_ = cmd.Wait() // it was killed
				if text, err := os.ReadFile(p.logs[i]); err == nil && t.Failed() {
					t.Logf("process %d of the region:\n%s", i, text)
				}
			})
			return kill
		}
	}
	config := documented(t, "regions", "nginx", address+":3000", "192.0.2.2", servers...)
	args := frontArgs(t, filepath.Join(l.d.dir, host+"-nginx"), "nginx", config)
	runFront(t, exec.Command("ip", append([]string{"netns", "exec", l.ns(host), "nginx"}, args...)...))
	p.begin()
	return p
}
