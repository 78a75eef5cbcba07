package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os/exec"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
)

// wire6 connects a namespace with the core over IPv6: as 2001:db8:n::2, with a default route.
func (l *lab) wire6(host, device, n string) {
	l.t.Helper()
	l.ip("link", "add", "x"+n, "netns", l.ns("core"), "type", "veth", "peer", "name", device, "netns", l.ns(host))
	for _, end := range [][3]string{{"core", "x" + n, "1"}, {host, device, "2"}} {
		l.ipIn(end[0], "addr", "add", "2001:db8:"+n+"::"+end[2]+"/64", "dev", end[1], "nodad")
		l.ipIn(end[0], "link", "set", end[1], "up")
	}
	l.ipIn(host, "-6", "route", "add", "default", "via", "2001:db8:"+n+"::1")
}

// TestIPv6OnlyLaptop: a laptop with only IPv6 reaches a server with IPv4 and IPv6. It reaches a workspace with both directly, and one
// with only IPv4 through the relay.
func TestIPv6OnlyLaptop(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.listen = "[::]"
	l.in("core", "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	l.wire6("srv", "six0", "1")
	l.host("ws", natEasy, slowlink.Options{})
	l.host("both", natEasy, slowlink.Options{})
	l.wire6("both", "six0", "2")
	l.namespace("six")
	l.wire6("six", "eth0", "3")
	l.deploy()
	l.workspace("dual", "both")

	url := "http://[2001:db8:1::2]:" + l.d.port
	run := func(ctx context.Context, args ...string) *exec.Cmd {
		plain := l.d.command(ctx, args...)
		cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", l.ns("six"), "env", "CODER_URL=" + url, coder}, args...)...)
		cmd.Env, cmd.Dir, cmd.WaitDelay = plain.Env, plain.Dir, plain.WaitDelay
		return cmd
	}
	sent := make([]byte, 2<<20)
	rand.Read(sent)
	for workspace, direct := range map[string]bool{"dev": false, "dual": true} {
		t.Run(workspace, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
			defer cancel()
			args := []string{"ping", workspace, "-n", "5"}
			if direct {
				args = []string{"ping", workspace, "-n", "20", "--wait", "500ms"} // the first ones may be relayed
			}
			out, err := run(ctx, args...).CombinedOutput()
			if err != nil || strings.Contains(string(out), "p2p") != direct || direct && !strings.Contains(string(out), "2001:db8:2::2") {
				t.Errorf("path: want direct %t, got %v\n%s", direct, err, out)
			}
			back := run(ctx, "ssh", workspace, "--", "cat")
			back.Stdin = bytes.NewReader(sent)
			var stderr strings.Builder
			back.Stderr = &stderr
			if got, err := back.Output(); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("2 MiB and back: got %d bytes (%v)\n%s", len(got), err, stderr.String())
			}
		})
	}
}
