package forward_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/forward"
)

// echo starts a TCP server that returns what it reads, until the client has sent everything.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	return l.Addr().String()
}

// serve listens on a free port and forwards it with dial. It returns the address and a function that ends it and returns what warn
// received.
func serve(t *testing.T, dial func() (net.Conn, error)) (address string, end func() []error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var warned []error
	var serving sync.WaitGroup
	serving.Go(func() {
		forward.ServeTCP(t.Context(), l, dial, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			warned = append(warned, err)
		})
	})
	end = sync.OnceValue(func() []error {
		l.Close()
		serving.Wait()
		return warned
	})
	t.Cleanup(func() { end() })
	return l.Addr().String(), end
}

func TestServeTCPHalfCloses(t *testing.T) {
	t.Parallel()
	remote := echo(t)
	local, end := serve(t, func() (net.Conn, error) { return net.Dial("tcp", remote) })
	conn, err := net.Dial("tcp", local)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "question" {
		t.Errorf("got %q, %v, want the question back after its end", answer, err)
	}
	if warned := end(); len(warned) > 0 {
		t.Errorf("warned of %v", warned)
	}
}

// TestServeTCPResetsWhatCannotBeDialled: a port that cannot be reached must not look like one with an empty answer.
func TestServeTCPResetsWhatCannotBeDialled(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	local, end := serve(t, func() (net.Conn, error) { return nil, refused })
	var answer []byte
	conn, err := net.Dial("tcp", local) // the reset may arrive at once
	if err == nil {
		defer conn.Close()
		answer, err = io.ReadAll(conn)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v, want a reset", answer, err)
	}
	if warned := end(); len(warned) != 1 || !errors.Is(warned[0], refused) {
		t.Errorf("warned of %v, want that the port was refused", warned)
	}
}

// TestServeUDP: each local sender has a flow of its own, and gets its own answers.
func TestServeUDP(t *testing.T) {
	t.Parallel()
	remote, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		local.Close()
		remote.Close()
		serving.Wait()
	})
	serving.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := remote.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = remote.WriteTo(buf[:n], from)
		}
	})
	dials := make(chan struct{}, 16)
	serving.Go(func() {
		forward.ServeUDP(t.Context(), local, func() (net.Conn, error) {
			dials <- struct{}{}
			return net.Dial("udp", remote.LocalAddr().String())
		}, func(err error) { t.Error(err) })
	})
	for _, text := range []string{"first", "second"} {
		conn, err := net.Dial("udp", local.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range 3 { // one flow for all of them
			if _, err := conn.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 1500)
			if n, err := conn.Read(buf); err != nil || string(buf[:n]) != text {
				t.Fatalf("got %q, %v, want %q", buf[:n], err, text)
			}
		}
	}
	if len(dials) != 2 {
		t.Errorf("%d flows were dialled for two senders", len(dials))
	}
}
