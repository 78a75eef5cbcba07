package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
)

// lab simulates an internet with network namespaces: hosts behind gateways, which are connected to a core by wires with a delay. The
// server has a public address, the workspace's agent runs behind an ordinary NAT, and each case has a laptop of its own in a
// network of its own kind. The tests assert the path, that every byte arrives, and that an open session continues.
// They print how long the session was silent.
type lab struct {
	t      *testing.T
	prefix string // of namespaces, so that two labs can exist
	server string // its public address
	listen string // the address that it listens on; empty means all of IPv4
	d      *deployment
	next   int               // number of the next gateway
	public map[string]string // addresses of gateways
}

// near returns the address of this process's own namespace at which the server's reaches it.
func (l *lab) near() string { return strings.TrimSuffix(l.server, "2") + "1" }

// labs counts the labs.
var labs atomic.Int32

// labDelay is the one-way delay of one wire. Packets between two hosts pass two wires.
const labDelay = 5 * time.Millisecond

func newLab(t *testing.T) *lab {
	t.Helper()
	asRoot(t)
	n := int(labs.Add(1))
	l := &lab{t: t, prefix: fmt.Sprintf("lab%d%c", os.Getpid(), 'a'+n), public: make(map[string]string)}
	// The server's public address is on a wire to this process's own namespace too, which commands and health checks use.
	wire := subnet()
	l.server = wire + "2"
	l.namespace("core")
	l.in("core", "sysctl", "-qw", "net.ipv4.ip_forward=1")
	l.namespace("srv")
	l.ip("link", "add", l.ns("t"), "type", "veth", "peer", "name", "test", "netns", l.ns("srv"))
	l.ip("addr", "add", wire+"1/30", "dev", l.ns("t"))
	l.ip("link", "set", l.ns("t"), "up")
	l.ipIn("srv", "addr", "add", l.server+"/30", "dev", "test")
	l.ipIn("srv", "link", "set", "test", "up")
	l.ip("link", "add", "srv", "netns", l.ns("core"), "type", "veth", "peer", "name", "eth0", "netns", l.ns("srv"))
	l.ipIn("core", "addr", "add", "203.0.113.1/30", "dev", "srv")
	l.ipIn("core", "link", "set", "srv", "up")
	l.ipIn("srv", "addr", "add", "203.0.113.2/30", "dev", "eth0")
	l.ipIn("srv", "link", "set", "eth0", "up")
	l.ipIn("srv", "route", "add", "default", "via", "203.0.113.1", "src", l.server) // UDP clients get their answers from the address that they asked
	l.ipIn("core", "route", "add", l.server, "via", "203.0.113.2")
	return l
}

func (l *lab) ns(name string) string { return l.prefix + name }

func (l *lab) namespace(name string) {
	l.t.Helper()
	l.ip("netns", "add", l.ns(name))
	l.t.Cleanup(func() { exec.Command("ip", "netns", "del", l.ns(name)).Run() })
	l.ipIn(name, "link", "set", "lo", "up")
}

func (l *lab) run(args ...string) {
	l.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func (l *lab) ip(args ...string) { l.t.Helper(); l.run(append([]string{"ip"}, args...)...) }
func (l *lab) ipIn(ns string, args ...string) {
	l.t.Helper()
	l.ip(append([]string{"-n", l.ns(ns)}, args...)...)
}
func (l *lab) in(ns string, args ...string) {
	l.t.Helper()
	l.ip(append([]string{"netns", "exec", l.ns(ns)}, args...)...)
}

// NATs of a gateway, as nft rules for packets that leave through the wire.
const (
	natEasy = "masquerade"              // keeps ports if it can, so that peers can guess them
	natHard = "masquerade fully-random" // another port for every destination
)

// host makes a namespace behind a gateway with the given NAT, and returns the wire to the core.
func (l *lab) host(name, nat string, wire slowlink.Options) *slowlink.Link {
	l.t.Helper()
	l.namespace(name)
	return l.uplink(name, name+"gw", "eth0", nat, wire)
}

// uplink connects a namespace with the core through a gateway of its own, and makes that its default route.
func (l *lab) uplink(name, gateway, device, nat string, wire slowlink.Options) *slowlink.Link {
	l.t.Helper()
	l.next++
	n := l.next
	l.namespace(gateway)
	l.ip("link", "add", "lan", "netns", l.ns(gateway), "type", "veth", "peer", "name", device, "netns", l.ns(name))
	l.ipIn(gateway, "addr", "add", fmt.Sprintf("10.71.%d.1/24", n), "dev", "lan")
	l.ipIn(gateway, "link", "set", "lan", "up")
	l.ipIn(name, "addr", "add", fmt.Sprintf("10.71.%d.2/24", n), "dev", device)
	l.ipIn(name, "link", "set", device, "up")
	l.ipIn(name, "route", "replace", "default", "via", fmt.Sprintf("10.71.%d.1", n))
	l.in(gateway, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	if wire.Delay == 0 {
		wire.Delay = labDelay
	}
	public := func(host int) string { return fmt.Sprintf("198.51.100.%d/30", 4*n+host) }
	l.public[gateway] = strings.TrimSuffix(public(1), "/30")
	link, err := slowlink.Join(slowlink.End{Namespace: l.ns(gateway), Device: "wan", Address: public(1)},
		slowlink.End{Namespace: l.ns("core"), Device: "w" + strconv.Itoa(n), Address: public(2)}, wire)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { link.Close() })
	l.ipIn(gateway, "route", "add", "default", "via", strings.TrimSuffix(public(2), "/30"))
	l.nat(gateway, "wan", nat)
	return link
}

// publicHost makes a namespace with a public address, and returns the address and its wire to the core.
func (l *lab) publicHost(name string, wire slowlink.Options) (address string, link *slowlink.Link) {
	l.t.Helper()
	l.next++
	n := l.next
	l.namespace(name)
	address = fmt.Sprintf("198.51.100.%d", 4*n+1)
	link, err := slowlink.Join(slowlink.End{Namespace: l.ns(name), Device: "eth0", Address: address + "/30"},
		slowlink.End{Namespace: l.ns("core"), Device: "w" + strconv.Itoa(n), Address: fmt.Sprintf("198.51.100.%d/30", 4*n+2)}, wire)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { link.Close() })
	l.ipIn(name, "route", "add", "default", "via", fmt.Sprintf("198.51.100.%d", 4*n+2))
	return address, link
}

// far replaces the server's wire to the core by one with the given delay.
func (l *lab) far(wire slowlink.Options) {
	l.t.Helper()
	l.ipIn("core", "link", "del", "srv")
	link, err := slowlink.Join(slowlink.End{Namespace: l.ns("srv"), Device: "eth0", Address: "203.0.113.2/30"},
		slowlink.End{Namespace: l.ns("core"), Device: "srv", Address: "203.0.113.1/30"}, wire)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { link.Close() })
	l.ipIn("srv", "route", "add", "default", "via", "203.0.113.1", "src", l.server)
	l.ipIn("core", "route", "add", l.server, "via", "203.0.113.2")
}

// carried returns how many bytes have crossed a device of the core.
func (l *lab) carried(device string) (n int64) {
	l.t.Helper()
	for _, way := range []string{"rx_bytes", "tx_bytes"} {
		out, err := exec.Command("ip", "netns", "exec", l.ns("core"), "cat", "/sys/class/net/"+device+"/statistics/"+way).Output()
		if err != nil {
			l.t.Fatal(err)
		}
		bytes, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			l.t.Fatal(err)
		}
		n += bytes
	}
	return n
}

// nat makes a gateway hide its network and admit only responses. It drops unsolicited packets, as most routers do.
func (l *lab) nat(gateway, device, kind string) {
	l.t.Helper()
	l.in(gateway, "nft", fmt.Sprintf(`add table ip n
add chain ip n post { type nat hook postrouting priority 100; }
add rule ip n post oifname %[1]s %[2]s
add chain ip n forw { type filter hook forward priority 0; policy drop; }
add rule ip n forw iifname != %[1]s accept
add rule ip n forw ct state established,related accept
add chain ip n own { type filter hook input priority 0; policy accept; }
add rule ip n own iifname %[1]s ct state new drop`, device, kind))
}

// lax makes two gateways accept unsolicited packets from each other: they remember these as connections of their
// own, and assign another port to connections from inside that use the same two ports.
func (l *lab) lax(a, b string) {
	l.t.Helper()
	l.in(a, "nft", "insert rule ip n own ip saddr "+l.public[b]+" accept")
	l.in(b, "nft", "insert rule ip n own ip saddr "+l.public[a]+" accept")
}

// blockUDP makes a gateway drop outgoing UDP packets, or pass them again.
func (l *lab) blockUDP(gateway string, block bool) {
	l.t.Helper()
	if block {
		l.in(gateway, "nft", `add table ip u
add chain ip u forw { type filter hook forward priority -10; }
add rule ip u forw meta l4proto udp drop`)
		return
	}
	l.in(gateway, "nft", "delete table ip u")
}

// hush makes a host drop packets that are too long for its link without reporting it.
func (l *lab) hush(host string) {
	l.t.Helper()
	l.in(host, "nft", `add table inet hush
add chain inet hush out { type filter hook output priority 0; }
add rule inet hush out icmp type destination-unreachable icmp code frag-needed drop
add rule inet hush out icmpv6 type packet-too-big drop`)
}

const labTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "cd %[1]s; HOME=%[1]s CODER_AGENT_TOKEN=${coder_agent.main.token} CODER_AGENT_URL=%[2]s setsid ip netns exec %[3]s %[4]s agent >%[1]s/agent.log 2>&1 </dev/null &"
  }
}
`

// deploy starts the server in its namespace, with a workspace whose agent runs in the namespace ws.
func (l *lab) deploy() {
	l.t.Helper()
	d := prepare(l.t, "--provisioner-isolation", "none")
	d.netns, d.base = l.ns("srv"), "http://"+l.server+":"+d.port
	d.extra = append(d.extra, "CODER_HTTP_ADDRESS="+cmp.Or(l.listen, "0.0.0.0")+":"+d.port)
	l.d = d
	d.begin()
	l.workspace("dev", "ws")
}

// workspace makes a workspace whose agent runs on a host.
func (l *lab) workspace(name, host string) {
	l.t.Helper()
	template, home := filepath.Join(l.d.dir, "template-"+name), filepath.Join(l.d.dir, "agent-"+name)
	for _, dir := range []string{template, home} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	text := fmt.Appendf(nil, labTemplate, home, l.d.url(), l.ns(host), coder)
	if err := os.WriteFile(filepath.Join(template, "main.tf"), text, 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.d.coder("templates", "push", "lab-"+name, "-d", template, "-y")
	l.d.coder("create", name, "-t", "lab-"+name, "-y")
	l.d.coder("ssh", name, "--", "true")
}

// coder returns a command that runs the command line on a host.
func (l *lab) coder(ctx context.Context, host string, args ...string) *exec.Cmd {
	return l.program(ctx, host, programFor(args), args...)
}

// program is coder for one of the two programs.
func (l *lab) program(ctx context.Context, host, program string, args ...string) *exec.Cmd {
	cmd := l.d.command(ctx, args...)
	wrapped := append([]string{"ip", "netns", "exec", l.ns(host), program}, args...)
	own := exec.CommandContext(ctx, wrapped[0], wrapped[1:]...)
	own.Env, own.Dir, own.WaitDelay = cmd.Env, cmd.Dir, cmd.WaitDelay
	return own
}

// path asserts which path a host uses to reach the workspace.
func (l *lab) path(t *testing.T, host string, direct bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settle)
	defer cancel()
	args := []string{"ping", "dev", "-n", "5"}
	if direct {
		args = []string{"ping", "dev", "-n", "20", "--wait", "500ms"} // the first ones may be relayed
	}
	out, err := l.coder(ctx, host, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("coder %v: %v\n%s", args, err, out)
	}
	if strings.Contains(string(out), "p2p") != direct {
		t.Errorf("path: want direct %t, got\n%s", direct, out)
	}
}

// bytes sends data through a session both ways and asserts that all of it arrives.
func (l *lab) bytes(t *testing.T, host string, flags ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	defer cancel()
	const size = 2 << 20
	cmd := l.coder(ctx, host, append(append([]string{"ssh"}, flags...), "dev", "--", "cat")...)
	cmd.Stdin = io.LimitReader(counting{new(uint32)}, size)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it prints its goroutines
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ssh: %v after %d bytes\n%s", err, len(out), &said)
	}
	want, err := io.ReadAll(io.LimitReader(counting{new(uint32)}, size))
	if err != nil || string(out) != string(want) {
		t.Errorf("got %d bytes back, and not the %d that were sent", len(out), size)
	}
}

// counting is a reader of bytes that do not repeat soon.
type counting struct{ n *uint32 }

func (c counting) Read(p []byte) (int, error) {
	for i := range p {
		*c.n = *c.n*1664525 + 1013904223
		p[i] = byte(*c.n >> 24)
	}
	return len(p), nil
}

// labSession is an open session in which the workspace counts.
type labSession struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	last  int
}

// session opens a session that counts up twenty times a second, to the given number.
func (l *lab) session(t *testing.T, host string, to int) *labSession {
	t.Helper()
	s := &labSession{t: t, lines: make(chan string, to)}
	// Not a shell, which would start a process for each number: a busy machine does not start twenty a second.
	count := fmt.Sprintf(`python3 -uc 'import time; [(print(i), time.sleep(0.05)) for i in range(1, %d)]'`, to+1)
	s.cmd = l.coder(t.Context(), host, "ssh", "dev", "--", count)
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = t.Output()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	s.until(20)
	return s
}

// until reads until the workspace has counted to n. It fails the test when a number is missing, or does not come: how
// fast a busy machine counts does not matter.
func (s *labSession) until(n int) {
	s.t.Helper()
	silence := time.NewTimer(settle)
	defer silence.Stop()
	for s.last < n {
		select {
		case line, ok := <-s.lines:
			s.take(line, ok)
			silence.Reset(settle)
		case <-silence.C:
			s.t.Fatalf("the session was silent for %s after %d", settle, s.last)
		}
	}
}

// take checks that a line is the next number.
func (s *labSession) take(line string, ok bool) {
	s.t.Helper()
	if !ok {
		s.t.Fatalf("the session ended at %d: %v", s.last, s.cmd.Wait())
	}
	if s.last++; line != strconv.Itoa(s.last) {
		s.t.Fatalf("got %q after %d", line, s.last-1)
	}
}

// resumed reads the first line after a disturbance and prints how long it took.
func (s *labSession) resumed(what string) {
	s.t.Helper()
	for drained := false; !drained; { // what had arrived before
		select {
		case line, ok := <-s.lines:
			s.take(line, ok)
		default:
			drained = true
		}
	}
	begin := time.Now()
	s.until(s.last + 1)
	s.t.Logf("%s: the session goes on after %s", what, time.Since(begin).Round(10*time.Millisecond))
}

// end reads to the last number, and fails the test unless the session succeeded.
func (s *labSession) end(to int) {
	s.t.Helper()
	s.until(to)
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the session ended with %v", err)
	}
}

// TestLab checks that every kind of network uses its expected path, and no byte is lost.
func TestLab(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cut := l.hosts()
	l.deploy()

	for host, direct := range map[string]bool{"easy": true, "hard": false, "inner": true, "lossy": true, "narrow": true, "dark": true, "lax": true, "walled": false} {
		t.Run("path/"+host, func(t *testing.T) {
			t.Parallel()
			l.path(t, host, direct)
			l.bytes(t, host)
		})
	}
	for _, host := range []string{"narrow", "dark"} {
		t.Run("relayed/"+host, func(t *testing.T) {
			t.Parallel()
			l.bytes(t, host, "--disable-direct-connections")
		})
	}
	l.sessions(t, cut)
}

// hosts puts one host into each kind of network. It returns the link of the one that is to be cut.
func (l *lab) hosts() (cut *slowlink.Link) {
	l.host("ws", natEasy, slowlink.Options{})
	l.host("easy", natEasy, slowlink.Options{})
	l.host("hard", natHard, slowlink.Options{})
	l.host("lossy", natEasy, slowlink.Options{Delay: 40 * time.Millisecond, Loss: 0.01})
	l.host("narrow", natEasy, slowlink.Options{MTU: 1280})
	// A narrow link whose ends do not report what they drop.
	l.host("dark", natEasy, slowlink.Options{MTU: 1280})
	l.hush("darkgw")
	l.hush("core")
	// Its first packet and that of the workspace must cross, while either of them is in transit.
	l.host("lax", natEasy, slowlink.Options{Delay: 250 * time.Millisecond})
	l.lax("laxgw", "wsgw")
	l.host("walled", natEasy, slowlink.Options{})
	l.blockUDP("walledgw", true)
	// A host with a second NAT inside the first.
	l.host("double", natEasy, slowlink.Options{})
	l.namespace("inner")
	l.ip("link", "add", "in", "netns", l.ns("double"), "type", "veth", "peer", "name", "eth0", "netns", l.ns("inner"))
	l.ipIn("double", "addr", "add", "10.72.0.1/24", "dev", "in")
	l.ipIn("double", "link", "set", "in", "up")
	l.in("double", "sysctl", "-qw", "net.ipv4.ip_forward=1")
	l.ipIn("inner", "addr", "add", "10.72.0.2/24", "dev", "eth0")
	l.ipIn("inner", "link", "set", "eth0", "up")
	l.ipIn("inner", "route", "add", "default", "via", "10.72.0.1")
	l.nat("double", "eth0", natEasy)
	// Hosts for tests of open sessions.
	cut = l.host("cut", natEasy, slowlink.Options{})
	l.host("blocked", natEasy, slowlink.Options{})
	l.host("roaming", natEasy, slowlink.Options{})
	return cut
}

// sessions runs tests beside each other of what a session survives.
func (l *lab) sessions(t *testing.T, cut *slowlink.Link) {
	t.Helper()
	const to = 500 // 25 s
	t.Run("session/cut", func(t *testing.T) {
		t.Parallel()
		s := l.session(t, "cut", to)
		cut.Cut(true)
		time.Sleep(8 * time.Second) // the tested outage
		cut.Cut(false)
		s.resumed("a link that was cut for 8 s")
		s.end(to)
	})
	t.Run("session/udp-blocked", func(t *testing.T) {
		t.Parallel()
		s := l.session(t, "blocked", to)
		l.blockUDP("blockedgw", true)
		s.resumed("UDP that is suddenly blocked")
		s.end(to)
	})
	t.Run("session/roaming", func(t *testing.T) {
		t.Parallel()
		s := l.session(t, "roaming", to)
		l.uplink("roaming", "roaming2gw", "eth1", natEasy, slowlink.Options{})
		l.ipIn("roaming", "link", "set", "eth0", "down")
		s.resumed("another network")
		s.end(to)
	})
}

// TestLabRelayRestart checks that a relayed session outlives a restart of its relay, which is the server.
func TestLabRelayRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.host("ws", natEasy, slowlink.Options{})
	l.host("walled", natEasy, slowlink.Options{})
	l.blockUDP("walledgw", true)
	l.deploy()
	const to = 400
	s := l.session(t, "walled", to)
	if err := l.d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := l.d.start(); err != nil {
		t.Fatal(err)
	}
	s.resumed("a relay that was restarted")
	s.end(to)
}
