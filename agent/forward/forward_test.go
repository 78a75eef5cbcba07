package forward_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/forward"
	"github.com/codermesh/codermesh/v2/internal/testport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

func newForwarder(t testing.TB) *forward.Forwarder {
	t.Helper()
	f := forward.New(forward.Options{})
	t.Cleanup(func() { f.Close() })
	return f
}

func open(t testing.TB, f *forward.Forwarder, port int) *net.TCPConn {
	t.Helper()
	client, server := pair(t)
	handle, ok := f.TCP(netip.AddrPort{}, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port)))
	if !ok {
		t.Fatal("the port is refused")
	}
	go handle(server)
	return client
}

// reverse serves connections: once the client has ended its sending, it answers with the received bytes in reverse order.
func reverse(t testing.TB, addr string) int {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("no such address here: ", err)
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
				data, err := io.ReadAll(c)
				if err != nil {
					return
				}
				for i, j := 0, len(data)-1; i < j; i, j = i+1, j-1 {
					data[i], data[j] = data[j], data[i]
				}
				_, _ = c.Write(data)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func TestTCP(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			client := open(t, newForwarder(t), reverse(t, addr))
			data := make([]byte, 8<<20)
			rand.Read(data)
			go func() {
				_, _ = client.Write(data)
				_ = client.CloseWrite()
			}()
			got, err := io.ReadAll(client)
			if err != nil || len(got) != len(data) {
				t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(data))
			}
			for i := range got {
				if got[i] != data[len(data)-1-i] {
					t.Fatalf("byte %d differs", i)
				}
			}
		})
	}
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	client := open(t, newForwarder(t), testport.Free())
	if n, err := client.Read(make([]byte, 1)); err == nil || n != 0 || errors.Is(err, io.EOF) {
		t.Errorf("read: %d, %v; want a reset, not an empty answer", n, err)
	}
}

func TestCloseEndsForwards(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newForwarder(t)
	client := open(t, f, l.Addr().(*net.TCPAddr).Port)
	service, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	f.Close()
	for name, c := range map[string]net.Conn{"peer": client, "service": service} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s is still connected", name)
		}
	}
	late := open(t, f, 1)
	if _, err := late.Read(make([]byte, 1)); err == nil {
		t.Error("a closed forwarder took a connection")
	}
}

// flow is one mesh UDP flow: a socket of ours, connected to the client's.
func flow(t *testing.T) (client, server net.Conn) {
	t.Helper()
	a, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := a.LocalAddr().(*net.UDPAddr)
	b, err := net.DialUDP("udp", nil, addr)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	back, err := net.DialUDP("udp", addr, b.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(); back.Close() })
	return b, back
}

func TestUDP(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			service, err := net.ListenPacket("udp", addr)
			if err != nil {
				t.Skip("no such address here: ", err)
			}
			defer service.Close()
			go func() {
				buf := make([]byte, 2048)
				for {
					n, from, err := service.ReadFrom(buf)
					if err != nil {
						return
					}
					_, _ = service.WriteTo(bytes.ToUpper(buf[:n]), from)
				}
			}()
			f := newForwarder(t)
			client, server := flow(t)
			handle, _ := f.UDP(netip.AddrPort{}, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(service.LocalAddr().(*net.UDPAddr).Port)))
			done := make(chan struct{})
			go func() { defer close(done); handle(server) }()
			for _, text := range []string{"one", "two", "three"} {
				if _, err := client.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 2048)
				n, err := client.Read(buf)
				if err != nil || string(buf[:n]) != string(bytes.ToUpper([]byte(text))) {
					t.Fatalf("%s: got %q, %v", text, buf[:n], err)
				}
			}
			f.Close()
			<-done
		})
	}
}

func BenchmarkTCP(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client := open(b, newForwarder(b), l.Addr().(*net.TCPAddr).Port)
	service, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer service.Close()
	const chunk = 1 << 20
	b.SetBytes(chunk)
	go func() { _, _ = io.Copy(io.Discard, service) }()
	buf := make([]byte, chunk)
	for b.Loop() {
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client := open(b, newForwarder(b), l.Addr().(*net.TCPAddr).Port)
	service, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer service.Close()
	go func() { _, _ = io.Copy(service, service) }()
	buf := make([]byte, 1)
	for b.Loop() {
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func TestDialLocal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := forward.DialLocal(ctx, 9); err == nil {
		conn.Close()
		t.Error("dialled with an ended context")
	}
}
