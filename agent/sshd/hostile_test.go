//go:build linux

package sshd_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// logged is a log that tests can inspect.
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

// TestSilentConnectionsAreBounded checks that silent connections are bounded and logged, and established ones continue.
func TestSilentConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	log := new(logged)
	h := startWith(t, slog.New(slog.NewTextHandler(log, nil)), nil)
	client := h.dialMux(t)
	if _, err := session(t, client).Output("true"); err != nil {
		t.Fatal(err) // it counts as one of the silent connections
	}
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	for range 300 {
		conn, err := net.Dial("tcp", h.mux.String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	for i, conn := range open[255:] {
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is open, want it refused from 256 on", 256+i)
		}
	}
	if n := h.server.Sessions(); n != 256 {
		t.Errorf("%d connections are open, want 256", n)
	}
	if !log.has("too many ssh connections") {
		t.Error("the refusal was not logged")
	}
	if out, err := session(t, client).Output("echo alive"); err != nil || string(out) != "alive\n" {
		t.Errorf("the established connection: got %q, %v", out, err)
	}
}

// TestClientThatDoesNotRead checks that a client that requests output and stops reading holds one window of it, and its program ends
// when it disconnects.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	client := h.dialMux(t)
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	if ok, err := channel.SendRequest("exec", true, gossh.Marshal(struct{ Command string }{"echo $$; exec cat /dev/zero"})); err != nil || !ok {
		t.Fatalf("exec: %v, %v", ok, err)
	}
	// The first line shows that the program runs. Standard error shares the window, and might not get through.
	line, err := bufio.NewReader(channel).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	// The connection is not blocked: its other channels work.
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

// TestBrokenTransport checks that a client that breaks the protocol loses its connection, and no other client does.
func TestBrokenTransport(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	for _, junk := range []string{"", "\x00", strings.Repeat("A", 100000), "SSH-2.0-x\r\n" + strings.Repeat("\xff", 65536), "SSH-1.5-old\r\n",
		"SMX", "SMX\x01", "SMX\x02" + strings.Repeat("\x00", 65536), "SMX\x02\xff\xff\xff\xff"} {
		conn, err := net.Dial("tcp", h.mux.String())
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
