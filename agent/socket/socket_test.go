package socket_test

import (
	"io"
	"net"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/agent/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBoundAndClose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := socket.Serve(l, 2, func(conn net.Conn) { io.Copy(conn, conn) })
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	speaks := func(conn net.Conn) bool {
		b := []byte{1}
		if _, err := conn.Write(b); err != nil {
			return false
		}
		_, err := io.ReadFull(conn, b)
		return err == nil
	}
	first, second := dial(), dial()
	if !speaks(first) || !speaks(second) {
		t.Fatal("two connections are not served")
	}
	if speaks(dial()) {
		t.Error("a third connection is served")
	}
	first.Close()
	for third := dial(); !speaks(third); third = dial() { // as soon as the server has seen the end of the first
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if speaks(second) {
		t.Error("a connection outlives Close")
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the socket outlives Close")
	}
}
