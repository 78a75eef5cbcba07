//go:build linux

package region_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/miekg/dns"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

// newWireGuardWorld is newWorld whose proxy has a WireGuard gateway.
func newWireGuardWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: coderdtest.Start(t), t: t}
	port := testport.Free()
	w.loaded = make(chan struct{}, 1)
	w.wireGuard = &region.WireGuard{Port: uint16(port), Access: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Loaded: func() {
		select {
		case w.loaded <- struct{}{}:
		default:
		}
	}}
	w.build(wildcard)
	return w
}

// load waits until the gateway knows what has just changed: a device whose first handshake comes too early repeats it after five seconds.
func (w *world) load(change func()) {
	w.t.Helper()
	for drained := false; !drained; {
		select {
		case <-w.loaded:
		default:
			drained = true
		}
	}
	change()
	testwait.For(w.t, "the gateway knows the devices", w.loaded)
}

// phone is a device of a user at the region.
type phone struct {
	*wireguardtest.Device
	id uuid.UUID
}

// phone registers a device for the region over the API, and connects it.
func (w *world) phone(user string) *phone {
	w.t.Helper()
	private, public := wireguardtest.NewKey(w.t)
	var d sdk.UserDevice
	var err error
	w.load(func() {
		d, err = w.As(user).CreateUserDevice(w.t.Context(), sdk.Me, sdk.CreateUserDeviceRequest{
			Name: "d" + uuid.NewString()[:8], PublicKey: wgquick.Key(public).String(), Region: "EU",
		})
	})
	if err != nil || d.Region != "eu" {
		w.t.Fatalf("%+v, %v", d, err)
	}
	shown, err := w.As(user).WireGuardGateway(w.t.Context())
	if err != nil || shown.Enabled || len(shown.Regions) != 1 || shown.Regions[0].Address != w.wireGuard.Access {
		w.t.Fatalf("the gateways are %+v, %v", shown, err)
	}
	key, err := wgquick.ParseKey(shown.Regions[0].PublicKey)
	if err != nil {
		w.t.Fatal(err)
	}
	device := wireguardtest.New(w.t, private, netip.MustParseAddr(d.Address), key, w.wireGuard.Port, netip.MustParsePrefix(shown.Prefix))
	return &phone{device, d.ID}
}

func (p *phone) dial(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, testwait.Patience)
	defer cancel()
	return p.DialContextTCPAddrPort(ctx, netip.AddrPortFrom(tailnet.Addr(agent), port))
}

// echoes expects that what listens at a TCP port of the workspace answers.
func (p *phone) echoes(t *testing.T, agent uuid.UUID, port uint16) net.Conn {
	t.Helper()
	c, err := p.dial(t.Context(), agent, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	echo(t, c)
	return c
}

func echo(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if n, err := testwait.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatalf("after %d bytes: %v", n, err)
	}
}

// wantReset expects that a connection is cut.
func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := testwait.ReadFull(c, make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection ends with %v; want a reset", err)
	}
}

// wantRefused expects a reset in place of a connection.
func (p *phone) wantRefused(t *testing.T, agent uuid.UUID, port uint16) {
	t.Helper()
	c, err := p.dial(t.Context(), agent, port)
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("port %d of %s: %v; want a reset", port, agent, err)
	}
}

// listeners opens an echoing TCP and UDP port in the workspace, which is this machine.
func listeners(t *testing.T) (tcp, udp uint16) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(buf[:n], from)
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port), uint16(u.LocalAddr().(*net.UDPAddr).Port)
}

// TestDeviceAtRegion: a device that its user has added for a region reaches their workspace there: ports, SSH, datagrams, names and echoes. What it opens
// is in the connection log, and ends with the right.
func TestDeviceAtRegion(t *testing.T) {
	t.Parallel()
	w := newWireGuardWorld(t)
	tcp, udp := listeners(t)
	p := w.phone("ann")
	p.echoes(t, w.agent, tcp)
	t.Run("ssh", func(t *testing.T) {
		c, err := p.dial(t.Context(), w.agent, meshport.SSH)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		greeting := make([]byte, 4)
		if n, err := testwait.ReadFull(c, greeting); err != nil || string(greeting) != "SSH-" {
			t.Errorf("%q, %v", greeting[:n], err)
		}
	})
	t.Run("datagrams", func(t *testing.T) { p.exchanges(t, w.agent, udp) })
	t.Run("names", func(t *testing.T) {
		if got := p.ask(t, "dev.coder.", dns.TypeAAAA); !strings.Contains(got.String(), tailnet.Addr(w.agent).String()) {
			t.Errorf("dev.coder is\n%s", got)
		}
		reverse, err := dns.ReverseAddr(tailnet.Addr(w.agent).String())
		if err != nil {
			t.Fatal(err)
		}
		if got := p.ask(t, reverse, dns.TypePTR); !strings.Contains(got.String(), "main.dev.ann.coder.") {
			t.Errorf("the address is\n%s", got)
		}
		if got := p.ask(t, "other.coder.", dns.TypeAAAA); got.Rcode != dns.RcodeNameError {
			t.Errorf("other.coder is\n%s", got)
		}
	})
	t.Run("log", func(t *testing.T) { w.logsDevice(t, tcp) })
	t.Run("ends", func(t *testing.T) { w.endsDevices(t, p, tcp) })
}

// exchanges sends datagrams to a port that echoes.
func (p *phone) exchanges(t *testing.T, agent uuid.UUID, port uint16) {
	t.Helper()
	c, err := p.DialUDPAddrPort(netip.AddrPort{}, netip.AddrPortFrom(tailnet.Addr(agent), port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range []int{1, 1000} {
		sent := strings.Repeat("x", n)
		got := make([]byte, 2000)
		testwait.Until(t, "a datagram comes back", func() error { // packets get lost
			if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
				return err
			}
			if _, err := c.Write([]byte(sent)); err != nil {
				return err
			}
			m, err := c.Read(got)
			return errors.Join(err, testwait.Equal(string(got[:m]), sent))
		})
	}
}

// logsDevice checks the rows of a device that uses a port and is removed.
func (w *world) logsDevice(t *testing.T, tcp uint16) {
	p := w.phone("ann")
	p.echoes(t, w.agent, tcp)
	p.echoes(t, w.agent, tcp).Close()
	rows := func(where string, args ...any) func() error {
		return w.Counts(1, `SELECT count(*) FROM connection_logs c JOIN user_devices d ON c.user_agent = 'WireGuard (' || d.name || ')'
			WHERE d.id = $1 AND c.agent_id = $2 AND c.region = 'eu' AND c.ip = '127.0.0.1' AND c.user_id = d.user_id AND `+where, append([]any{p.id, w.agent}, args...)...)
	}
	testwait.Until(t, "the use of the port is in the log", rows("slug_or_port = $3 AND type = 'port_forwarding'", strconv.Itoa(int(tcp))))
	if err := w.As("ann").DeleteUserDevice(t.Context(), sdk.Me, p.id); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "its end is in the log", w.Counts(1,
		`SELECT count(*) FROM connection_logs WHERE disconnect_time IS NOT NULL AND slug_or_port = $1 AND bytes_in = 10 AND bytes_out = 10`, strconv.Itoa(int(tcp))))
}

// endsDevices takes away, one after the other, what devices need to stay connected. The given one stays until its region is deleted.
func (w *world) endsDevices(t *testing.T, p *phone, tcp uint16) {
	kept := p.echoes(t, w.agent, tcp)
	removed := w.phone("ann")
	c := removed.echoes(t, w.agent, tcp)
	if err := w.As("ann").DeleteUserDevice(t.Context(), sdk.Me, removed.id); err != nil {
		t.Fatal(err)
	}
	wantReset(t, c)
	echo(t, kept)

	w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object($2::text, 'use') WHERE id = $1`, w.workspace, w.User("bob"))
	bobs := w.phone("bob")
	c = bobs.echoes(t, w.agent, tcp)
	w.Exec(`UPDATE workspaces SET sharing = '{}' WHERE id = $1`, w.workspace)
	wantReset(t, c)
	bobs.wantRefused(t, w.agent, tcp)

	expired := w.phone("ann")
	c = expired.echoes(t, w.agent, tcp)
	w.Exec(`UPDATE user_devices SET expires_at = now() + interval '100 ms' WHERE id = $1`, expired.id)
	wantReset(t, c)

	w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object($2::text, 'use') WHERE id = $1`, w.workspace, w.User("eve"))
	suspended := w.phone("eve")
	c = suspended.echoes(t, w.agent, tcp)
	if _, err := w.As("olga").SuspendUser(t.Context(), "eve"); err != nil {
		t.Fatal(err)
	}
	wantReset(t, c)
	echo(t, kept)

	if err := w.As("olga").DeleteWorkspaceProxy(t.Context(), "eu"); err != nil {
		t.Fatal(err)
	}
	wantReset(t, kept)
	if list, err := w.As("ann").UserDevices(t.Context(), sdk.Me); err != nil || len(list) != 0 {
		t.Errorf("after its region is gone, the devices are %+v, %v", list, err)
	}
}

// ask sends a question to the gateway.
func (p *phone) ask(t *testing.T, name string, kind uint16) *dns.Msg {
	t.Helper()
	c, err := p.DialContextTCPAddrPort(t.Context(), netip.AddrPortFrom(gateway.Addr, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn := &dns.Conn{Conn: c}
	if err := errors.Join(c.SetDeadline(time.Now().Add(testwait.Patience)), conn.WriteMsg(new(dns.Msg).SetQuestion(name, kind))); err != nil {
		t.Fatal(err)
	}
	answer, err := conn.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestStrangeDevices: a region's gateway leads nowhere that the device's user may not go, and serves no device of another gateway.
func TestStrangeDevices(t *testing.T) {
	t.Parallel()
	w := newWireGuardWorld(t)
	tcp, _ := listeners(t)
	bobs, anns := w.phone("bob"), w.phone("ann")
	bobs.wantRefused(t, w.agent, tcp)
	bobs.wantRefused(t, w.agent, meshport.SSH)
	anns.wantRefused(t, w.agent, meshport.AgentRPC)      // the server's port of the agent
	anns.wantRefused(t, uuid.New(), tcp)                 // no one
	anns.wantRefused(t, bobs.id, tcp)                    // another device
	anns.wantRefused(t, w.Mesh.ID(), meshport.ServerRPC) // the server's own services
	for name, kind := range map[string]uint16{"dev.ann.coder.": dns.TypeAAAA, "example.com.": dns.TypeAAAA} {
		if got := bobs.ask(t, name, kind); got.Rcode == dns.RcodeSuccess {
			t.Errorf("%s is\n%s", name, got)
		}
	}
	for what, req := range map[string]sdk.CreateUserDeviceRequest{
		"a region that does not exist": {Name: "x", Region: "mars"},
		"the servers' gateway":         {Name: "x"}, // there is none
	} {
		_, public := wireguardtest.NewKey(t)
		req.PublicKey = wgquick.Key(public).String()
		if _, err := w.As("ann").CreateUserDevice(t.Context(), sdk.Me, req); fault.As(err) == nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDeviceOutlivesItsGateway: the process that comes after a region's proxy begins new sessions with the devices of the one before, whose
// configuration stays valid.
func TestDeviceOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	w := newWireGuardWorld(t)
	tcp, _ := listeners(t)
	p := w.phone("ann")
	c := p.echoes(t, w.agent, tcp)
	testwait.Until(t, "it is stored where the device is", w.Counts(1, `SELECT count(*) FROM user_devices WHERE id = $1 AND endpoint IS NOT NULL`, p.id))
	w.stop()
	if _, err := testwait.ReadFull(c, make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection through the old process ends with %v", err)
	}
	var l net.Listener
	testwait.Until(t, "the address is free", func() (err error) { // a process that is being started has a copy for a moment
		l, err = net.Listen("tcp", w.addr)
		return err
	})
	w.serveProxy(w.token, l, w.proxy, wildcard)
	testwait.Until(t, "the device is back", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := p.dial(ctx, w.agent, tcp)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		return c.Close()
	})
}
