package tailnet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
	"github.com/google/uuid"
)

func lines(s string) iter.Seq[string] { return strings.SplitSeq(s, "\n") }

func shortly(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), 1500*time.Millisecond)
}

// The test below runs in three network namespaces: two nodes in networks of their own, and between them the relay's
// machine, which may or may not route between the two networks. Each is a process running this test binary, with its role
// set in the environment.
const roleVariable = "TAILNET_TEST_ROLE"

// message is what the processes and the test exchange, one line of JSON each.
type message struct {
	Admit  *tailnet.PublicKey `json:",omitempty"` // to the relay
	Ready  *tailnet.NodeInfo  `json:",omitempty"` // from a node: it exists; from the relay: empty
	Peer   *tailnet.NodeInfo  `json:",omitempty"` // to a node
	Dial   *uuid.UUID         `json:",omitempty"` // to a node: dial that peer, and keep exchanging bytes
	Await  tailnet.Path       `json:",omitempty"` // to a node: report when packets take this path
	Done   string             `json:",omitempty"` // from a node: what it did
	Relays *tailnet.RelayMap  `json:",omitempty"` // to a node
	Server string             `json:",omitempty"` // to a node
}

// playRole runs such a process until its standard input ends.
func playRole(role string) {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
	if role == "relay" {
		playRelay(in, out, fail)
		return
	}
	n, err := tailnet.New(tailnet.Options{ID: uuid.New()})
	if err != nil {
		fail(err)
	}
	defer n.Close()
	n.HandleTCP(func(_, _ netip.AddrPort) (func(net.Conn), bool) {
		return func(c net.Conn) {
			defer c.Close()
			io.Copy(c, c)
		}, true
	})
	publish := func() {
		info := n.Info()
		out.Encode(message{Ready: &info})
	}
	go func() {
		for range n.Changed() {
			publish()
		}
	}()
	publish()
	beat := make(chan error, 1)
	var far uuid.UUID
	for {
		var msg message
		if err := in.Decode(&msg); err != nil {
			return
		}
		switch {
		case msg.Relays != nil:
			u, err := url.Parse(msg.Server)
			if err == nil {
				err = n.SetRelayMap(*msg.Relays, u)
			}
			if err != nil {
				fail(err)
			}
		case msg.Peer != nil:
			if err := n.Upsert(tailnet.Peer{NodeInfo: *msg.Peer, Inbound: tailnet.InboundAll}); err != nil {
				fail(err)
			}
		case msg.Dial != nil:
			far = *msg.Dial
			c, err := n.Dial(context.Background(), "tcp", netip.AddrPortFrom(tailnet.Addr(far), 7))
			if err != nil {
				fail(err)
			}
			go func() { beat <- heartbeat(c) }()
			out.Encode(message{Done: "dialled"})
		case msg.Await != "":
			for !pathIs(n, far, msg.Await) {
				select {
				case err := <-beat:
					fail(fmt.Errorf("the connection broke: %w", err))
				case <-time.After(100 * time.Millisecond):
				}
			}
			out.Encode(message{Done: string(msg.Await)})
		}
	}
}

func pathIs(n *tailnet.Node, far uuid.UUID, want tailnet.Path) bool {
	for _, p := range n.Status().Peers {
		if p.ID == far {
			return p.Path == want
		}
	}
	return false
}

// heartbeat exchanges a byte every 50 ms over an echo connection until that fails.
func heartbeat(c net.Conn) error {
	buf := make([]byte, 1)
	for {
		if _, err := c.Write(buf); err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Read(buf); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func playRelay(in *json.Decoder, out *json.Encoder, fail func(error)) {
	s, err := relay.New(relay.Options{})
	if err != nil {
		fail(err)
	}
	if _, err := s.ListenSTUN(":3478"); err != nil {
		fail(err)
	}
	l, err := net.Listen("tcp", ":3000")
	if err != nil {
		fail(err)
	}
	go http.Serve(l, s.Handler())
	out.Encode(message{Ready: &tailnet.NodeInfo{}})
	for {
		var msg message
		if err := in.Decode(&msg); err != nil {
			return
		}
		s.Admit(*msg.Admit)
		out.Encode(message{Done: "admitted"})
	}
}

// TestBlockedThenOpen checks that two nodes without a route between their networks communicate through the relay, find the
// direct path without help once there is a route, and fall back to the relay when it is gone, without breaking a
// connection.
func TestBlockedThenOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need iproute2")
	}
	t.Parallel()
	tag := fmt.Sprintf("cm%d", os.Getpid())
	name := func(role string) string { return tag + role }
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	within := func(role string, args ...string) []string {
		return append([]string{"ip", "netns", "exec", name(role)}, args...)
	}
	for _, role := range []string{"r", "a", "b"} {
		run("ip", "netns", "add", name(role))
		t.Cleanup(func() { exec.Command("ip", "netns", "del", name(role)).Run() })
		run(within(role, "ip", "link", "set", "lo", "up")...)
	}
	for i, role := range []string{"a", "b"} {
		net := fmt.Sprintf("10.77.%d.", i)
		run("ip", "link", "add", name(role)+"0", "netns", name("r"), "type", "veth", "peer", "name", "eth0", "netns", name(role))
		run(within("r", "ip", "addr", "add", net+"1/24", "dev", name(role)+"0")...)
		run(within("r", "ip", "link", "set", name(role)+"0", "up")...)
		run(within(role, "ip", "addr", "add", net+"2/24", "dev", "eth0")...)
		run(within(role, "ip", "link", "set", "eth0", "up")...)
		run(within(role, "ip", "route", "add", "default", "via", net+"1")...)
	}
	forward := func(on string) {
		t.Helper()
		run(within("r", "sh", "-c", "echo "+on+" > /proc/sys/net/ipv4/ip_forward")...)
	}
	forward("0")

	relay := startRole(t, within("r", os.Args[0]), "relay")
	relay.expect(func(m message) bool { return m.Ready != nil })
	nodes := map[string]*process{}
	infos := map[string]tailnet.NodeInfo{}
	for i, role := range []string{"a", "b"} {
		p := startRole(t, within(role, os.Args[0]), role)
		first := p.expect(func(m message) bool { return m.Ready != nil })
		relay.send(message{Admit: &first.Ready.Key})
		relay.expect(func(m message) bool { return m.Done == "admitted" })
		p.send(message{
			Server: fmt.Sprintf("http://10.77.%d.1:3000", i),
			Relays: &tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "r", STUNPort: 3478}}},
		})
		info := *p.expect(func(m message) bool { return m.Ready != nil && m.Ready.Region == 1 && len(m.Ready.Endpoints) > 0 }).Ready
		nodes[role], infos[role] = p, info
	}
	a, b, infoA, infoB := nodes["a"], nodes["b"], infos["a"], infos["b"]
	b.send(message{Peer: &infoA})
	a.send(message{Peer: &infoB})
	a.onReady = func(info tailnet.NodeInfo) { b.send(message{Peer: &info}) }
	a.send(message{Dial: &infoB.ID})
	a.expect(func(m message) bool { return m.Done == "dialled" })
	for _, step := range []struct {
		forward string
		path    tailnet.Path
	}{{"0", tailnet.PathRelay}, {"1", tailnet.PathDirect}, {"0", tailnet.PathRelay}, {"1", tailnet.PathDirect}} {
		forward(step.forward)
		a.send(message{Await: step.path})
		a.expect(func(m message) bool { return m.Done == string(step.path) })
	}
}

// process is a child process that plays a role.
type process struct {
	t       *testing.T
	in      io.WriteCloser
	out     *bufio.Scanner
	onReady func(tailnet.NodeInfo)
}

func startRole(t *testing.T, command []string, role string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cancel()
		cmd.Wait()
	})
	return &process{t: t, in: in, out: bufio.NewScanner(out)}
}

func (p *process) send(m message) {
	p.t.Helper()
	if err := json.NewEncoder(p.in).Encode(m); err != nil {
		p.t.Fatal(err)
	}
}

// expect reads messages until one matches want. The child's own deadline bounds it.
func (p *process) expect(want func(message) bool) message {
	p.t.Helper()
	for p.out.Scan() {
		var m message
		if err := json.Unmarshal(p.out.Bytes(), &m); err != nil {
			p.t.Fatalf("child sent %q: %v", p.out.Text(), err)
		}
		if want(m) {
			return m
		}
		if m.Ready != nil && p.onReady != nil {
			p.onReady(*m.Ready)
		}
	}
	p.t.Fatal("the child exited before sending the expected message")
	return message{}
}
