//go:build linux

package sshd_test

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// logged is a log that tests look into.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// Connections that never get to a session are bounded and logged, and those that are established go on.
func TestHalfOpenConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	log := new(logged)
	h := startWith(t, slog.New(slog.NewTextHandler(log, nil)), nil)
	client := h.dial(t)
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	refused := false
	for range 300 {
		conn, err := net.Dial("tcp", h.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if greeting, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(greeting, "SSH-2.0-") {
			refused = true
			break
		}
	}
	if !refused || len(open) != 256 { // one is the client's
		t.Errorf("after %d connections that say nothing: refused %v, want it at 256", len(open), refused)
	}
	if !log.has("too many ssh connections") {
		t.Error("the refusal was not logged")
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := session.Output("echo alive"); err != nil || string(out) != "alive\n" {
		t.Errorf("the established connection: got %q, %v", out, err)
	}
}

// A client that asks for output and never reads it holds one window of it, and takes its program with it when it goes.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	client := h.dial(t)
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	if ok, err := channel.SendRequest("exec", true, gossh.Marshal(struct{ Command string }{"echo $$ >&2; exec cat /dev/zero"})); err != nil || !ok {
		t.Fatalf("exec: %v, %v", ok, err)
	}
	line, err := bufio.NewReader(channel.Stderr()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	// The connection is not blocked: others of its channels work.
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := session.Output("echo alive"); err != nil || string(out) != "alive\n" {
		t.Errorf("another session: got %q, %v", out, err)
	}
	client.Close()
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	waitGone(t, pid)
}

// A client that breaks the protocol after the handshake loses its connection, and nobody else does.
func TestBrokenTransport(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	for _, junk := range []string{"", "\x00", strings.Repeat("A", 100000), "SSH-2.0-x\r\n" + strings.Repeat("\xff", 65536), "SSH-1.5-old\r\n"} {
		conn, err := net.Dial("tcp", h.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, junk) // the server may have closed it by then
		_ = conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%.20q: %v", junk, err)
		}
		conn.Close()
	}
	if stdout, stderr, status := run(t, h.ssh(t.Context(), nil, "echo alive")); status != 0 || stdout != "alive\n" {
		t.Errorf("afterwards: got status %d, %q, %q", status, stdout, stderr)
	}
}
