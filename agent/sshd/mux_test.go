//go:build linux

package sshd_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux"
)

func session(t *testing.T, client *gossh.Client) *gossh.Session {
	t.Helper()
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMux checks that a session can do without SSH's encryption whatever it can do over SSH.
func TestMux(t *testing.T) {
	t.Parallel()
	client := start(t, nil).dialMux(t)

	s := session(t, client)
	var stderr bytes.Buffer
	s.Stdin, s.Stderr = strings.NewReader("hello"), &stderr
	if err := s.Setenv("GREETING", "hi"); err != nil {
		t.Fatal(err)
	}
	out, err := s.Output(`cat; printf " $GREETING" ; echo bad >&2; exit 3`)
	exit, ok := errors.AsType[*gossh.ExitError](err)
	if string(out) != "hello hi" || stderr.String() != "bad\n" || !ok || exit.ExitStatus() != 3 {
		t.Errorf("exec: got %q, %q, %v", out, stderr.String(), err)
	}

	s = session(t, client)
	if err := s.RequestPty("xterm", 33, 77, nil); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("stty size; tty"); err != nil || !strings.HasPrefix(string(out), "33 77\r\n/dev/pts/") {
		t.Errorf("terminal: got %q, %v", out, err)
	}

	s = session(t, client)
	if err := s.RequestSubsystem("nonsense"); err == nil {
		t.Error("a subsystem that does not exist: got success")
	}
	// A client that does not want an answer sees the end of the channel.
	if _, err := s.SendRequest("subsystem", false, gossh.Marshal(struct{ Name string }{"nonsense"})); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SendRequest("env", true, nil); err == nil {
		t.Error("after a refused subsystem that wants no answer: the session is still open")
	}

	l, err := client.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("remote forward: %v", err)
	}
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.WriteString(c, "from the laptop")
			c.Close()
		}
	}()
	c, err := client.Dial("tcp", l.Addr().String()) // from the workspace to its own listener, which leads back here
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); err != nil || string(text) != "from the laptop" {
		t.Errorf("there and back: got %q, %v", text, err)
	}
}

// TestWindowGrows checks that a client whose program reads its input gets a window larger than the SSH library's 2 MiB.
func TestWindowGrows(t *testing.T) {
	t.Parallel()
	client := start(t, nil).dialMux(t)
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	// The program reads 8 MiB and then stops: later data fills the window.
	if ok, err := channel.SendRequest("exec", true, gossh.Marshal(struct{ Command string }{"head -c 8388608 >/dev/null; echo done; sleep 1000"})); err != nil || !ok {
		t.Fatalf("exec: %t, %v", ok, err)
	}
	if _, err := channel.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(channel, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	// Only a grown window accepts this much without a reader.
	if _, err := channel.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	channel.Close()
}

// TestForwardAtOnce: a client may request a remote forward before the server knows its connection, because the request came with the
// connection's first packet. The agent once panicked in that case.
func TestForwardAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	queue := &queued{Listener: l, conns: make(chan net.Conn)}
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(queue) }()
	defer func() {
		close(queue.conns)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 1000 {
				ours, theirs := net.Pipe()
				conn := sshmux.New(ours, sshmux.Options{})
				asked := make(chan bool, 1)
				go func() {
					ok, _, err := conn.SendRequest("tcpip-forward", true, gossh.Marshal(struct {
						Host string
						Port uint32
					}{"127.0.0.1", 0}))
					asked <- ok && err == nil
				}()
				queue.conns <- theirs
				if !<-asked {
					t.Error("the forward was refused")
				}
				conn.Close()
			}
		})
	}
	clients.Wait()
}

// queued is a listener whose connections the test makes.
type queued struct {
	net.Listener
	conns chan net.Conn
}

func (q *queued) Accept() (net.Conn, error) {
	conn, ok := <-q.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
