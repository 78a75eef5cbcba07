package wggateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/miekg/dns"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

// world is a server with a gateway, a workspace of ada's, dev, whose agent echoes at port 8000, and one of bob's.
type world struct {
	*coderdtest.Server
	dev, bobs uuid.UUID // agents
	workspace uuid.UUID // ada's
}

func start(t *testing.T, edit ...func(*coderd.Options)) *world {
	t.Helper()
	s := coderdtest.Start(t, append([]func(*coderd.Options){func(o *coderd.Options) {
		o.WireGuardAddress, o.WireGuardAccess = ":0", "127.0.0.1:51820"
	}}, edit...)...)
	w := &world{Server: s}
	template := s.Template("process", nil).ID
	dev, agent := s.Running("ada", "dev", template)
	w.workspace, w.dev = dev.ID, agent
	_, w.bobs = s.Running("bob", "work", template)
	for _, agent := range []uuid.UUID{w.dev, w.bobs} {
		m := s.Join(coderdtest.AsAgent(coderdtest.Token(agent).Reveal())).Joined()
		m.Serve(8000, coderdtest.Echo)
		m.Serve(meshport.SSH, coderdtest.Echo)
		m.Serve(meshport.AgentRPC, coderdtest.Echo)
	}
	return w
}

// phone is a device of a user.
type phone struct {
	*wireguardtest.Device
	id uuid.UUID
}

// add registers a device over the API, and connects it.
func (w *world) add(t *testing.T, user, name string) *phone {
	t.Helper()
	private, public := wireguardtest.NewKey(t)
	return w.addKey(t, user, name, private, public)
}

func (w *world) addKey(t *testing.T, user, name string, private, public wireguardtest.Key) *phone {
	t.Helper()
	d, err := w.As(user).CreateUserDevice(t.Context(), sdk.Me, sdk.CreateUserDeviceRequest{Name: name, PublicKey: wgquick.Key(public).String()})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := w.As(user).WireGuardGateway(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, err := wgquick.ParseKey(shown.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return &phone{wireguardtest.New(t, private, netip.MustParseAddr(d.Address), key, w.WireGuard.Port(), netip.MustParsePrefix(shown.Prefix)), d.ID}
}

func (p *phone) dial(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, testwait.Patience)
	defer cancel()
	return p.DialContextTCPAddrPort(ctx, netip.AddrPortFrom(tailnet.Addr(agent), port))
}

// reaches expects that a port of an agent echoes.
func (p *phone) reaches(t *testing.T, agent uuid.UUID, port uint16) net.Conn {
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

// refused expects a reset.
func (p *phone) refused(t *testing.T, agent uuid.UUID, port uint16) {
	t.Helper()
	c, err := p.dial(t.Context(), agent, port)
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("port %d of %s: %v; want a reset", port, agent, err)
	}
}

func TestReach(t *testing.T) {
	t.Parallel()
	w := start(t)
	p := w.add(t, "ada", "phone")
	p.reaches(t, w.dev, 8000)
	p.reaches(t, w.dev, meshport.SSH)

	t.Run("others", func(t *testing.T) {
		p.refused(t, w.bobs, 8000)                    // another user's workspace
		p.refused(t, w.dev, meshport.AgentRPC)        // the server's port of the agent
		p.refused(t, uuid.New(), 8000)                // no one
		q := w.add(t, "bob", "phone")                 // another device
		p.refused(t, q.id, 8000)                      //
		q.refused(t, w.dev, 8000)                     // bob, at ada's
		p.refused(t, w.Mesh.ID(), meshport.ServerRPC) // the server's own services
	})
	t.Run("shared", func(t *testing.T) {
		bob := w.add(t, "bob", "tablet")
		bob.refused(t, w.dev, 8000) // and the refusal does not outlive its reason
		w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object((SELECT id::text FROM users WHERE username = 'bob'), 'use') WHERE id = $1`, w.workspace)
		bob.reaches(t, w.dev, 8000)
	})
	t.Run("log", func(t *testing.T) {
		testwait.Until(t, "the connection is in the log", func() error {
			return w.Counts(1, `SELECT count(*) FROM connection_logs WHERE user_agent = 'WireGuard (phone)' AND agent_id = $1 AND slug_or_port = '8000' AND ip = '127.0.0.1'`, w.dev)()
		})
	})
}

// wantReset expects that a connection is reset, and not closed.
func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := testwait.ReadFull(c, make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection ends with %v; want a reset", err)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	w := start(t)
	t.Run("a removed device", func(t *testing.T) {
		p, kept := w.add(t, "ada", "one"), w.add(t, "ada", "two")
		c, other := p.reaches(t, w.dev, 8000), kept.reaches(t, w.dev, 8000)
		if err := w.As("ada").DeleteUserDevice(t.Context(), sdk.Me, p.id); err != nil {
			t.Fatal(err)
		}
		wantReset(t, c)
		echo(t, other)
	})
	t.Run("an expired device", func(t *testing.T) {
		p := w.add(t, "ada", "three")
		c := p.reaches(t, w.dev, 8000)
		w.Exec(`UPDATE user_devices SET expires_at = now() + interval '100 ms' WHERE id = $1`, p.id)
		wantReset(t, c)
	})
	t.Run("a key that another user registers", w.endsMovedKey)
	t.Run("a workspace that is no longer shared", func(t *testing.T) {
		w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object((SELECT id::text FROM users WHERE username = 'bob'), 'use') WHERE id = $1`, w.workspace)
		p := w.add(t, "bob", "phone")
		c := p.reaches(t, w.dev, 8000)
		w.Exec(`UPDATE workspaces SET sharing = '{}' WHERE id = $1`, w.workspace)
		wantReset(t, c)
		p.refused(t, w.dev, 8000)
		p.reaches(t, w.bobs, 8000)
	})
	t.Run("a new password that ends tokens", func(t *testing.T) {
		w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object($2::text, 'use') WHERE id = $1`, w.workspace, w.User("eve"))
		p := w.add(t, "eve", "phone")
		c := p.reaches(t, w.dev, 8000)
		if err := w.As("olga").UpdateUserPassword(t.Context(), "eve", sdk.UpdateUserPasswordRequest{Password: "Staple-Battery-7-Horse", EndTokens: true}); err != nil {
			t.Fatal(err)
		}
		wantReset(t, c)
	})
	t.Run("a suspended user", func(t *testing.T) {
		p := w.add(t, "ada", "four")
		c := p.reaches(t, w.dev, 8000)
		testwait.Until(t, "the gateway has stored where the device is",
			w.Counts(1, `SELECT count(*) FROM user_devices WHERE id = $1 AND endpoint IS NOT NULL`, p.id))
		w.Exec(`UPDATE users SET status = 'suspended' WHERE username = 'ada'`)
		wantReset(t, c)
		w.Exec(`UPDATE users SET status = 'active' WHERE username = 'ada'`)
		testwait.Until(t, "the device is back", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c, err := p.dial(ctx, w.dev, 8000)
			if err == nil {
				c.Close()
			}
			return err
		})
	})
}

// endsMovedKey removes a device whose key another user then registers: the connections of the former are not the latter's.
func (w *world) endsMovedKey(t *testing.T) {
	private, public := wireguardtest.NewKey(t)
	former := w.addKey(t, "ada", "moved", private, public)
	c := former.reaches(t, w.dev, 8000)
	if err := w.As("ada").DeleteUserDevice(t.Context(), sdk.Me, former.id); err != nil {
		t.Fatal(err)
	}
	wantReset(t, c)
	p := w.addKey(t, "bob", "moved", private, public)
	kept := w.add(t, "ada", "kept")
	// Its former address is not the key's any more.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := former.DialContextTCPAddrPort(ctx, netip.AddrPortFrom(tailnet.Addr(w.dev), 8000))
		done <- err
	}()
	for range 20 {
		kept.reaches(t, w.dev, 8000).Close()
	}
	cancel()
	if err := testwait.For(t, "the dial is cancelled", done); err == nil || strings.Contains(err.Error(), "refused") {
		t.Errorf("the former device's connection: %v; want silence", err)
	}
	former.Close()
	p.reaches(t, w.bobs, 8000)
	p.refused(t, w.dev, 8000)
}

// ask sends a question over UDP or TCP.
func (p *phone) ask(t *testing.T, network string, m *dns.Msg) *dns.Msg {
	t.Helper()
	to := netip.AddrPortFrom(gateway.Addr, 53)
	var (
		c   net.Conn
		err error
	)
	if network == "udp" {
		c, err = p.DialUDPAddrPort(netip.AddrPort{}, to)
	} else {
		c, err = p.DialContextTCPAddrPort(t.Context(), to)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn := &dns.Conn{Conn: c, UDPSize: 4096}
	var answer *dns.Msg
	testwait.Until(t, "a question is answered", func() (err error) { // packets get lost
		if err = c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if err = conn.WriteMsg(m); err != nil {
			return err
		}
		answer, err = conn.ReadMsg()
		return err
	})
	if answer.Id != m.Id {
		t.Errorf("the answer has the id %d, the question %d", answer.Id, m.Id)
	}
	return answer
}

func question(name string, kind uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, kind)
}

// resolver is a name server of the server's network. It returns its address.
func resolver(t *testing.T) string {
	t.Helper()
	addr := testport.Addr()
	socket, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	rr := func(text string) dns.RR {
		r, err := dns.NewRR(text)
		if err != nil {
			t.Error(err)
		}
		return r
	}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		switch q.Question[0].Name {
		case "example.com.":
			m.Answer = []dns.RR{rr("example.com. 60 IN AAAA 2001:db8::1")}
		case "rebind.example.com.":
			m.Answer = []dns.RR{
				rr("rebind.example.com. 60 IN AAAA " + gateway.Addr.String()), rr("rebind.example.com. 60 IN AAAA 2001:db8::2"),
				rr(`rebind.example.com. 60 IN HTTPS 1 . ipv6hint="` + gateway.Addr.String() + `"`),
			}
		case "alias.example.com.":
			m.Answer = []dns.RR{
				rr("alias.example.com. 60 IN CNAME dev.ada.coder."), rr("example.com. 60 IN DNAME coder."), rr("alias.example.com. 60 IN SRV 0 0 80 dev.Coder."),
				rr("alias.example.com. 60 IN SVCB 0 dev.coder."), rr("alias.example.com. 60 IN HTTPS 1 dev.coder. port=80"), rr("alias.example.com. 60 IN AAAA 2001:db8::3"),
			}
		case "long.example.com.":
			for i := range 60 {
				m.Answer = append(m.Answer, rr(fmt.Sprintf("long.example.com. 60 IN AAAA 2001:db8::%x", i+1)))
			}
		default:
			m.Rcode = dns.RcodeNameError
		}
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(int(q.IsEdns0().UDPSize()))
		}
		_ = w.WriteMsg(m)
	})
	for _, server := range []*dns.Server{{PacketConn: socket, Handler: answer}, {Listener: listener, Handler: answer}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go server.ActivateAndServe()
		testwait.For(t, "the resolver listens", started)
		t.Cleanup(func() { server.Shutdown() })
	}
	return addr
}

func TestNames(t *testing.T) {
	t.Parallel()
	upstream := resolver(t)
	w := start(t, func(o *coderd.Options) { o.Resolvers = func() ([]string, error) { return []string{upstream}, nil } })
	p := w.add(t, "ada", "phone")
	agent := tailnet.Addr(w.dev)
	reverse, err := dns.ReverseAddr(agent.String())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := dns.ReverseAddr(tailnet.Addr(w.bobs).String())
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			name  string
			kind  uint16
			rcode int
			want  string // what the answer contains
		}{
			{"dev.coder.", dns.TypeAAAA, dns.RcodeSuccess, agent.String()},
			{"dEv.cOdEr.", dns.TypeAAAA, dns.RcodeSuccess, "dEv.cOdEr."},
			{"dev.ada.coder.", dns.TypeAAAA, dns.RcodeSuccess, agent.String()},
			{"main.dev.ada.coder.", dns.TypeAAAA, dns.RcodeSuccess, agent.String()},
			{"dev.coder.", dns.TypeA, dns.RcodeSuccess, "SOA"},
			{"dev.coder.", dns.TypeMX, dns.RcodeSuccess, "SOA"},
			{"coder.", dns.TypeSOA, dns.RcodeSuccess, "SOA"},
			{"other.coder.", dns.TypeAAAA, dns.RcodeNameError, "SOA"},
			{"work.bob.coder.", dns.TypeAAAA, dns.RcodeNameError, "SOA"}, // another user's, as one that does not exist
			{"a.b.c.d.coder.", dns.TypeAAAA, dns.RcodeNameError, "SOA"},
			{reverse, dns.TypePTR, dns.RcodeSuccess, "main.dev.ada.coder."},
			{foreign, dns.TypePTR, dns.RcodeNameError, "SOA"},
			{reverse[2:], dns.TypePTR, dns.RcodeNameError, "SOA"},
			{"example.com.", dns.TypeAAAA, dns.RcodeSuccess, "2001:db8::1"},
			{"missing.example.com.", dns.TypeAAAA, dns.RcodeNameError, ""},
			{"rebind.example.com.", dns.TypeAAAA, dns.RcodeSuccess, "2001:db8::2"},
			{"alias.example.com.", dns.TypeAAAA, dns.RcodeSuccess, "2001:db8::3"},
		} {
			answer := p.ask(t, network, question(c.name, c.kind))
			if answer.Rcode != c.rcode || !strings.Contains(answer.String(), c.want) {
				t.Errorf("%s: %s %s is answered with\n%s", network, c.name, dns.TypeToString[c.kind], answer)
			}
			if c.name == "rebind.example.com." && strings.Contains(answer.String(), gateway.Addr.String()) {
				t.Errorf("a name outside leads into the mesh:\n%s", answer)
			}
			if c.name == "alias.example.com." && strings.Contains(strings.ToLower(answer.String()), "coder.") {
				t.Errorf("a name outside is another name of a workspace:\n%s", answer)
			}
		}
	}
	t.Run("why there is no A", func(t *testing.T) {
		q := question("dev.coder.", dns.TypeA)
		q.SetEdns0(1232, false)
		if answer := p.ask(t, "udp", q); !strings.Contains(answer.String(), "IPv6 addresses only") {
			t.Errorf("the answer is\n%s", answer)
		}
	})
	t.Run("long answers", p.asksLong)
	t.Run("other questions", p.asksOthers)
	t.Run("the gateway's other ports", func(t *testing.T) {
		c, err := p.DialContextTCPAddrPort(t.Context(), netip.AddrPortFrom(gateway.Addr, 80))
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("port 80: %v, %v", c, err)
		}
	})
	t.Run("a workspace that stops", func(t *testing.T) {
		w.Exec(`UPDATE workspaces SET deleted_at = now() WHERE id = $1`, w.workspace)
		if answer := p.ask(t, "udp", question("dev.coder.", dns.TypeAAAA)); answer.Rcode != dns.RcodeNameError {
			t.Errorf("a workspace that is gone has the address\n%s", answer)
		}
	})
}

// asksLong asks for a name with more addresses than a packet has room for.
func (p *phone) asksLong(t *testing.T) {
	if answer := p.ask(t, "udp", question("long.example.com.", dns.TypeAAAA)); !answer.Truncated || len(answer.Answer) > 20 {
		t.Errorf("%d addresses come in one packet", len(answer.Answer))
	}
	if answer := p.ask(t, "tcp", question("long.example.com.", dns.TypeAAAA)); len(answer.Answer) != 60 {
		t.Errorf("over TCP, %d addresses come", len(answer.Answer))
	}
}

// asksOthers asks what is not a question for names of the Internet.
func (p *phone) asksOthers(t *testing.T) {
	update := question("dev.coder.", dns.TypeAAAA)
	update.Opcode = dns.OpcodeUpdate
	chaos := question("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	for q, want := range map[*dns.Msg]int{update: dns.RcodeNotImplemented, chaos: dns.RcodeRefused} {
		if answer := p.ask(t, "udp", q); answer.Rcode != want {
			t.Errorf("%s is answered with\n%s", q, answer)
		}
	}
}

// TestNoForwarding checks that an operator can keep devices from the server's resolvers, and that too many questions are refused.
func TestNoForwarding(t *testing.T) {
	t.Parallel()
	w := start(t, func(o *coderd.Options) { o.WireGuardNoDNSForward = true })
	p := w.add(t, "ada", "phone")
	if answer := p.ask(t, "udp", question("example.com.", dns.TypeAAAA)); answer.Rcode != dns.RcodeRefused {
		t.Errorf("the answer is\n%s", answer)
	}
	if answer := p.ask(t, "udp", question("dev.coder.", dns.TypeAAAA)); answer.Rcode != dns.RcodeSuccess {
		t.Errorf("the answer is\n%s", answer)
	}
}
