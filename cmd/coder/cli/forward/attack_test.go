package forward_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/forward"
)

// wire is a listener, or a socket, in memory. Its other ends are senders.
type wire struct {
	conns  chan net.Conn
	fails  chan error
	in     chan datagram
	out    chan datagram
	closed chan struct{}
	end    func()
}

type datagram struct {
	peer string
	data string
}

func newWire() *wire {
	w := &wire{conns: make(chan net.Conn), fails: make(chan error), in: make(chan datagram), out: make(chan datagram, 4096), closed: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.closed) })
	return w
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case err := <-w.fails:
		return nil, err
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) ReadFrom(p []byte) (int, net.Addr, error) {
	select {
	case d := <-w.in:
		return copy(p, d.data), sender(d.peer), nil
	case err := <-w.fails:
		return 0, nil, err
	case <-w.closed:
		return 0, nil, net.ErrClosed
	}
}

func (w *wire) WriteTo(p []byte, to net.Addr) (int, error) {
	w.out <- datagram{to.String(), string(p)}
	return len(p), nil
}

func (w *wire) Close() error                     { w.end(); return nil }
func (w *wire) Addr() net.Addr                   { return sender("local") }
func (w *wire) LocalAddr() net.Addr              { return sender("local") }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

type sender string

func (sender) Network() string  { return "udp" }
func (s sender) String() string { return string(s) }

// TestFloodOfConnections: programs on this machine cannot make a forward hold connections without end. What is open goes on, and a port is
// forwarded again as soon as connections end, or descriptors are free.
func TestFloodOfConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newWire()
		var services []net.Conn
		var mu sync.Mutex // guards services
		var serving sync.WaitGroup
		serving.Go(func() {
			forward.ServeTCP(t.Context(), l, func() (net.Conn, error) {
				near, far := net.Pipe()
				mu.Lock()
				defer mu.Unlock()
				services = append(services, far)
				return near, nil
			}, func(err error) { t.Error(err) })
		})
		connect := func() net.Conn {
			near, far := net.Pipe()
			l.conns <- far
			synctest.Wait()
			return near
		}
		for range 20 {
			l.fails <- fmt.Errorf("accept: %w", syscall.EMFILE)
		}
		var open []net.Conn
		for range 2000 {
			open = append(open, connect())
		}
		if len(services) != 1024 {
			t.Errorf("%d connections reached the workspace, want 1024", len(services))
		}
		if _, err := open[1999].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection too many: %v, want its end", err)
		}
		go func() { _, _ = services[0].Write([]byte("x")) }()
		if n, err := open[0].Read(make([]byte, 1)); n != 1 {
			t.Errorf("the first connection: %v", err)
		}
		open[0].Close()
		synctest.Wait()
		if open = append(open, connect()); len(services) != 1025 {
			t.Errorf("%d connections after one has ended, want one more", len(services))
		}
		for _, c := range open {
			c.Close()
		}
		l.Close()
		serving.Wait()
	})
}

// lane is a connection to a service in the workspace, which answers if it is told so.
type lane struct {
	answers bool
	got     chan string
	sent    chan string
	closed  chan struct{}
	end     func()
}

func newLane(answers bool) *lane {
	l := &lane{answers: answers, got: make(chan string, 4096), sent: make(chan string, 4096), closed: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.closed) })
	return l
}

func (l *lane) Read(p []byte) (int, error) {
	select {
	case text := <-l.sent:
		return copy(p, text), nil
	case <-l.closed:
		return 0, net.ErrClosed
	}
}

func (l *lane) Write(p []byte) (int, error) {
	l.got <- string(p)
	if l.answers {
		l.sent <- string(p)
	}
	return len(p), nil
}

func (l *lane) Close() error                     { l.end(); return nil }
func (l *lane) LocalAddr() net.Addr              { return sender("near") }
func (l *lane) RemoteAddr() net.Addr             { return sender("far") }
func (l *lane) SetDeadline(time.Time) error      { return nil }
func (l *lane) SetReadDeadline(time.Time) error  { return nil }
func (l *lane) SetWriteDeadline(time.Time) error { return nil }

// TestFloodOfSenders: senders without end, whose datagrams nothing answers, keep neither those whose datagrams are answered nor a new one from
// the port, and are bounded.
func TestFloodOfSenders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		socket := newWire()
		answers, lanes := true, []*lane(nil)
		open := func() (n int) {
			for _, l := range lanes {
				select {
				case <-l.closed:
				default:
					n++
				}
			}
			return n
		}
		var serving sync.WaitGroup
		serving.Go(func() {
			forward.ServeUDP(ctx, socket, func() (net.Conn, error) {
				l := newLane(answers)
				lanes = append(lanes, l)
				return l, nil
			}, func(err error) { t.Error(err) })
		})
		send := func(from, text string) {
			socket.in <- datagram{from, text}
			synctest.Wait()
		}
		expect := func(want datagram) {
			t.Helper()
			select {
			case got := <-socket.out:
				if got != want {
					t.Errorf("got %v, want %v", got, want)
				}
			default:
				t.Errorf("%v was not answered", want)
			}
		}
		send("good", "before")
		expect(datagram{"good", "before"})
		answers = false
		for i := range 5000 {
			send(fmt.Sprint("evil", i), "x")
		}
		if n := open(); n != 256 {
			t.Errorf("%d flows are open, want 256", n)
		}
		send("good", "after")
		expect(datagram{"good", "after"})
		socket.fails <- os.ErrDeadlineExceeded // what Windows reports of an answer that did not arrive
		answers = true
		send("new", "hello")
		expect(datagram{"new", "hello"})
		time.Sleep(3 * time.Minute) // virtual
		synctest.Wait()
		if n := open(); n != 0 {
			t.Errorf("%d flows are open after their silence", n)
		}
		socket.Close()
		serving.Wait()
	})
}

// TestSlowFlowDelaysNoOther: what is sent while a flow is being connected waits, up to a bound, and other flows go on.
func TestSlowFlowDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		socket := newWire()
		slow, dials := make(chan *lane), 0
		var serving sync.WaitGroup
		serving.Go(func() {
			forward.ServeUDP(t.Context(), socket, func() (net.Conn, error) {
				if dials++; dials == 1 {
					return <-slow, nil
				}
				return newLane(true), nil
			}, func(err error) { t.Error(err) })
		})
		huge := string(make([]byte, 60<<10))
		for range 100 {
			socket.in <- datagram{"slow", huge}
		}
		synctest.Wait()
		socket.in <- datagram{"quick", "x"}
		synctest.Wait()
		if len(socket.out) != 1 {
			t.Errorf("%d answers while another flow is being connected, want one", len(socket.out))
		}
		l := newLane(false)
		slow <- l
		synctest.Wait()
		if n := len(l.got); n < 1 || n > 17 { // of 60 KiB each, within 1 MiB
			t.Errorf("%d datagrams had waited", n)
		}
		socket.Close()
		serving.Wait()
	})
}
