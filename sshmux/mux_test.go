package sshmux_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a client and the server's end of its connection.
func pair(t testing.TB, opts sshmux.Options) (client *ssh.Client, server *sshmux.Conn) {
	t.Helper()
	near, far := stream(t)
	return pairOver(t, near, far, opts)
}

// pairOver is pair over both ends of a connection of the test.
func pairOver(t testing.TB, near, far net.Conn, opts sshmux.Options) (client *ssh.Client, server *sshmux.Conn) {
	t.Helper()
	opts.Server = true
	server = sshmux.New(far, opts)
	client = sshmux.Client(near, sshmux.Options{})
	t.Cleanup(func() {
		client.Close()
		server.Close()
		server.Wait()
		client.Wait()
	})
	return client, server
}

// ends returns both ends of a connection.
func ends(t testing.TB) (client, server *sshmux.Conn) {
	t.Helper()
	near, far := stream(t)
	client, server = sshmux.New(near, sshmux.Options{}), sshmux.New(far, sshmux.Options{Server: true})
	t.Cleanup(func() {
		client.Close()
		server.Close()
		client.Wait()
		server.Wait()
	})
	return client, server
}

func stream(t testing.TB) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// serve acts as the SSH server: "cat" echoes, "fail" writes to stderr and exits with status 7, and other commands are refused.
func serve(server *sshmux.Conn) {
	for request := range server.Channels() {
		if request.Type() != "session" {
			request.Reject(ssh.UnknownChannelType, "no such thing")
			continue
		}
		channel, err := request.Accept()
		if err != nil {
			return
		}
		go func() {
			for req := range channel.Requests() {
				if req.Type != "exec" {
					req.Reply(req.Type == "fine")
					continue
				}
				command := string(req.Payload[4:])
				req.Reply(command == "cat" || command == "fail")
				switch command {
				case "cat":
					go func() {
						io.Copy(channel, channel)
						channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{0}))
						channel.Close()
					}()
				case "fail":
					fmt.Fprint(channel.Stderr(), "it went wrong")
					channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{7}))
					channel.Close()
				default:
					channel.Close()
				}
			}
		}()
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	client, server := pair(t, sshmux.Options{})
	go serve(server)
	for range 3 {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // far more than a window
		s.Stdin = bytes.NewReader(data)
		got, err := s.Output("cat")
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("cat: got %d bytes, %v; want %d", len(got), err, len(data))
		}
	}
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	s.Stderr = &stderr
	err = s.Run("fail")
	if exit, ok := errors.AsType[*ssh.ExitError](err); !ok || exit.ExitStatus() != 7 || stderr.String() != "it went wrong" {
		t.Errorf("fail: got %v, %q", err, stderr.String())
	}
	if s, err = client.NewSession(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start("nothing"); err == nil {
		t.Error("a program that is not started: got success")
	}
}

func TestRefusedChannel(t *testing.T) {
	t.Parallel()
	client, server := pair(t, sshmux.Options{MaxChannels: 2})
	go serve(server)
	ch, _, err := client.OpenChannel("nonsense", nil)
	if err != nil {
		t.Fatal(err)
	}
	var refused *ssh.OpenChannelError
	if _, err := ch.Read(make([]byte, 1)); !errors.As(err, &refused) || refused.Reason != ssh.UnknownChannelType {
		t.Errorf("read from a refused channel: got %v", err)
	}
	var all []ssh.Channel
	for range 3 {
		ch, _, err := client.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ch)
	}
	if _, err := all[2].Read(make([]byte, 1)); !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage {
		t.Errorf("read from one channel too many: got %v", err)
	}
}

// TestConfirmedOpen checks that a confirmed open reports whether the other end accepts the channel, and if not, why.
func TestConfirmedOpen(t *testing.T) {
	t.Parallel()
	client, server := ends(t)
	go serve(server)
	var refused *ssh.OpenChannelError
	if _, err := client.OpenConfirmed("nonsense", nil); !errors.As(err, &refused) || refused.Reason != ssh.UnknownChannelType || refused.Message != "no such thing" {
		t.Errorf("a channel that does not exist: got %v", err)
	}
	ch, err := client.OpenConfirmed("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{"cat"})); !ok || err != nil {
		t.Errorf("exec: got %t, %v", ok, err)
	}
	server.Close()
	if _, err := client.OpenConfirmed("session", nil); err == nil || errors.As(err, &refused) {
		t.Errorf("after the connection's end: got %v, want an error", err)
	}
}

// TestAnswers checks that requests do not wait for answers to earlier ones, and that each gets its own answer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	client, server := ends(t)
	ch, err := client.Open("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name string) *sshmux.Answer {
		answer := sshmux.NewAnswer()
		if err := ch.Ask(name, nil, answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	first, second, third := ask("fine"), ask("wrong"), ask("fine")
	go serve(server)
	if !first.OK() || second.OK() || !third.OK() {
		t.Error("the answers do not match their requests")
	}
	if ok, err := ch.SendRequest("unknown", false, nil); !ok || err != nil {
		t.Errorf("a request that wants no answer: got %t, %v", ok, err)
	}
	if ok, err := ch.SendRequest("unknown", true, nil); ok || err != nil {
		t.Errorf("a request that is refused: got %t, %v", ok, err)
	}
	// Nothing waits forever: requests still unanswered when a channel ends are refused.
	stuck, err := client.Open("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer := sshmux.NewAnswer()
	if err := stuck.Ask("exit", nil, answer); err != nil {
		t.Fatal(err)
	}
	stuck.Close()
	if answer.OK() {
		t.Error("a request on a channel that was closed: got success")
	}
	late := sshmux.NewAnswer()
	if err := stuck.Ask("more", nil, late); err == nil || late.OK() {
		t.Errorf("a request after the end: got %v", err)
	}
}

// TestUnansweredRequestsAreBounded checks that a server that never answers cannot make its client store requests without bound.
// TestLongRequests sends requests that do not fit into one frame.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	client, server := pair(t, sshmux.Options{})
	go func() {
		incoming := <-server.Channels()
		channel, err := incoming.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		for req := range channel.Requests() {
			sum := sha256.Sum256(req.Payload)
			_ = req.Reply(req.Type == fmt.Sprintf("%x", sum[:8]))
		}
	}()
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	for _, n := range []int{0, 1, sshmux.MaxData - 129, sshmux.MaxData - 128, sshmux.MaxData, 3 * sshmux.MaxData, sshmux.MaxRequest} {
		payload := bytes.Repeat([]byte("0123456789abcdef "), n/17+1)[:n]
		sum := sha256.Sum256(payload)
		if ok, err := channel.SendRequest(fmt.Sprintf("%x", sum[:8]), true, payload); !ok || err != nil {
			t.Errorf("%d bytes: %t, %v", n, ok, err)
		}
	}
	if _, err := channel.SendRequest("x", true, make([]byte, sshmux.MaxRequest+1)); err == nil {
		t.Error("a request that is too long was sent")
	}
	// An end that sends more in parts loses the connection.
	for range sshmux.MaxRequest/1024 + 1 {
		_, _ = channel.SendRequest("part@codermesh", false, make([]byte, 1024))
	}
	if err := server.Wait(); err == nil || !strings.Contains(err.Error(), "breaks the protocol") {
		t.Errorf("the connection ended with %v", err)
	}
}

func TestUnansweredRequestsAreBounded(t *testing.T) {
	t.Parallel()
	near, far := stream(t)
	go io.Copy(io.Discard, far)
	client := sshmux.New(near, sshmux.Options{})
	defer client.Wait()
	defer client.Close()
	ch, err := client.Open("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 300 {
		channelErr := ch.Ask("x", nil, sshmux.NewAnswer())
		globalErr := client.Ask("x", nil, sshmux.NewAnswer())
		if (channelErr != nil) != (n >= 256) || (globalErr != nil) != (n >= 256) {
			t.Fatalf("request %d: got %v and %v, want a refusal from 256 on", n, channelErr, globalErr)
		}
	}
	far.Close()
}

// TestOtherVersion checks that programs of different versions detect and report the difference.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	for _, server := range []bool{true, false} {
		for sent, want := range map[string]string{
			"SMX\x03": "speaks version 3", "SSH-": "breaks the protocol", "": "ended before the other end answered",
			"SMX":                  "ended before the other end answered",
			"\x00\x00\x00\x0e\x01": "breaks the protocol", // version 1
		} {
			near, far := stream(t)
			conn := sshmux.New(near, sshmux.Options{Server: server})
			io.WriteString(far, sent)
			far.(*net.TCPConn).CloseWrite()
			if err := conn.Wait(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("server %t, sent %q: got %v, want %q", server, sent, err, want)
			}
			got, _ := io.ReadAll(far) // ends with a reset if data was left unread
			if want := server && sent == "SMX\x03"; (string(got) == preamble) != want {
				t.Errorf("server %t, sent %q: it sent %q", server, sent, got)
			}
			far.Close()
		}
	}
}

func TestGlobalRequests(t *testing.T) {
	t.Parallel()
	client, server := pair(t, sshmux.Options{Global: func(name string, payload []byte) (bool, []byte) {
		return name == "double", append(payload, payload...)
	}})
	if ok, answer, err := client.SendRequest("double", true, []byte("ab")); !ok || string(answer) != "abab" || err != nil {
		t.Errorf("double: got %t, %q, %v", ok, answer, err)
	}
	if ok, _, err := client.SendRequest("unknown", true, nil); ok || err != nil {
		t.Errorf("unknown: got %t, %v", ok, err)
	}
	// The client does not have a handler, but its answer shows the server that it is alive.
	if ok, _, err := server.SendRequest("keepalive@openssh.com", true, nil); ok || err != nil {
		t.Errorf("keepalive: got %t, %v", ok, err)
	}
	client.Close()
	if _, _, err := server.SendRequest("keepalive@openssh.com", true, nil); err == nil {
		t.Error("keepalive without another end: got no error")
	}
}
