package connset_test

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/internal/connset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// echoes reports whether echo serves the other end of conn.
func echoes(conn net.Conn) bool {
	b := []byte{1}
	if _, err := conn.Write(b); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, b)
	return err == nil
}

func TestServe(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	s := connset.New(connset.Options{Limit: 2, Refused: func(net.Conn) { refused.Add(1) }})
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, echo) }()
	first, second := dial(t, l), dial(t, l)
	if !echoes(first) || !echoes(second) {
		t.Fatal("two connections are not served")
	}
	if echoes(dial(t, l)) || refused.Load() != 1 {
		t.Errorf("a third connection is served, or was not refused: %d calls", refused.Load())
	}
	if s.Len() != 2 {
		t.Errorf("Len is %d, want 2", s.Len())
	}
	first.Close()
	for third := dial(t, l); !echoes(third); third = dial(t, l) {
		third.Close() // the set has not seen the end of the first yet
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if echoes(second) {
		t.Error("a connection outlives Close")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("a listener outlives Close")
	}
	if err := s.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	s := connset.New(connset.Options{Refused: func(net.Conn) { t.Error("a closed set is not a full one") }})
	s.Close()
	l := listen(t)
	if err := s.Serve(l, echo); err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("Serve of a closed set left its listener open")
	}
	a, b := net.Pipe()
	defer b.Close()
	if s.Do(a, func() { t.Error("a closed set serves") }) {
		t.Error("a closed set took a connection")
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection that a closed set did not take: %v, want io.EOF", err)
	}
}

// TestCloseWaits: Close ends what Do serves, and returns after that.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	s := connset.New(connset.Options{})
	a, b := net.Pipe()
	defer b.Close()
	began := make(chan struct{})
	var ended atomic.Bool
	go s.Do(a, func() {
		close(began)
		_, _ = a.Read(make([]byte, 1))
		ended.Store(true)
	})
	<-began
	s.Close()
	if !ended.Load() {
		t.Error("Close did not wait")
	}
}

// TestListenerEnds: Serve returns when its listener is closed, and returns the reason when the listener breaks.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	s := connset.New(connset.Options{})
	defer s.Close()
	l := listen(t)
	l.Close()
	if err := s.Serve(l, echo); err != nil {
		t.Errorf("serve a closed listener: %v", err)
	}
	broken := errors.New("broken")
	if err := s.Serve(failing{listen(t), make(chan error, 1), broken}, echo); !errors.Is(err, broken) {
		t.Errorf("serve a broken listener: %v", err)
	}
}

// failing is a listener whose Accept first returns the error in once, and then fails for good with then, or accepts if then is nil.
type failing struct {
	net.Listener
	once chan error
	then error
}

func (l failing) Accept() (net.Conn, error) {
	select {
	case err := <-l.once:
		return nil, err
	default:
	}
	if l.then != nil {
		return nil, l.then
	}
	return l.Listener.Accept()
}

// TestNoDescriptors: a listener survives a process that is out of file descriptors for a while.
func TestNoDescriptors(t *testing.T) {
	t.Parallel()
	s := connset.New(connset.Options{})
	defer s.Close()
	l := failing{listen(t), make(chan error, 1), nil}
	l.once <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
	go s.Serve(l, echo)
	if !echoes(dial(t, l.Listener)) {
		t.Error("the listener does not serve after an accept without descriptors")
	}
}
