package sshmux_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/internal/sshmux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a client, and the server's ends of what it opens.
func pair(t testing.TB, opts sshmux.Options) (client *ssh.Client, server *sshmux.Conn, channels <-chan ssh.NewChannel) {
	t.Helper()
	near, far := stream(t)
	opts.Server = true
	server, channels, _ = sshmux.New(far, opts)
	mux, incoming, requests := sshmux.New(near, sshmux.Options{})
	client = ssh.NewClient(mux, incoming, requests)
	t.Cleanup(func() {
		client.Close()
		server.Close()
		server.Wait()
		mux.Wait()
	})
	return client, server, channels
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

// serve plays the SSH server: "cat" echoes, "fail" exits with 7 and words on stderr, anything else is not started.
func serve(channels <-chan ssh.NewChannel) {
	for request := range channels {
		if request.ChannelType() != "session" {
			request.Reject(ssh.UnknownChannelType, "no such thing")
			continue
		}
		channel, requests, err := request.Accept()
		if err != nil {
			return
		}
		go func() {
			for req := range requests {
				if req.Type != "exec" {
					continue
				}
				switch string(req.Payload[4:]) {
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
	client, _, channels := pair(t, sshmux.Options{})
	go serve(channels)
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
	if err := s.Run("nothing"); err == nil {
		t.Error("a program that is not started: got success")
	}
}

func TestRefusedChannel(t *testing.T) {
	t.Parallel()
	client, _, channels := pair(t, sshmux.Options{MaxChannels: 2})
	go serve(channels)
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

func TestGlobalRequests(t *testing.T) {
	t.Parallel()
	client, server, _ := pair(t, sshmux.Options{Global: func(name string, payload []byte) (bool, []byte) {
		return name == "double", append(payload, payload...)
	}})
	if ok, answer, err := client.SendRequest("double", true, []byte("ab")); !ok || string(answer) != "abab" || err != nil {
		t.Errorf("double: got %t, %q, %v", ok, answer, err)
	}
	if ok, _, err := client.SendRequest("unknown", true, nil); ok || err != nil {
		t.Errorf("unknown: got %t, %v", ok, err)
	}
	// The client has no handler; the server learns that it is there.
	if ok, _, err := server.SendRequest("keepalive@openssh.com", true, nil); ok || err != nil {
		t.Errorf("keepalive: got %t, %v", ok, err)
	}
	client.Close()
	if _, _, err := server.SendRequest("keepalive@openssh.com", true, nil); err == nil {
		t.Error("keepalive to nobody: got no error")
	}
}

// What one channel's reader leaves lying stops neither the others nor the memory's bound.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	client, _, channels := pair(t, sshmux.Options{})
	stuck, _, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan int, 1)
	go func() {
		n, _ := stuck.Write(make([]byte, 2*sshmux.MaxWindow))
		left <- n
	}()
	<-channels // and nobody reads from it
	go serve(channels)
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdin = bytes.NewReader([]byte("hello"))
	if got, err := s.Output("cat"); err != nil || string(got) != "hello" {
		t.Errorf("beside a channel that is stuck: got %q, %v", got, err)
	}
	stuck.Close()
	if n := <-left; n != sshmux.FirstWindow {
		t.Errorf("written to a channel that nobody reads: %d bytes, want %d", n, sshmux.FirstWindow)
	}
}

func frame(kind byte, channel uint32, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(5+len(body)))
	b = append(b, kind)
	return append(binary.BigEndian.AppendUint32(b, channel), body...)
}

// Whoever breaks the rules loses the connection.
func TestHostileClient(t *testing.T) {
	t.Parallel()
	open := frame(1, 1, append([]byte{0, 7}, "session"...)...)
	flood := open
	for range sshmux.FirstWindow/sshmux.MaxData + 1 {
		flood = append(flood, frame(3, 1, make([]byte, sshmux.MaxData)...)...)
	}
	for what, data := range map[string][]byte{
		"more than the window":         flood,
		"a frame without an end":       {0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 1},
		"a frame without a head":       {0, 0, 0, 1, 1, 0, 0, 0, 1},
		"a channel of the server":      frame(1, 1<<31|1, append([]byte{0, 7}, "session"...)...),
		"a channel twice":              append(bytes.Clone(open), open...),
		"a type that never ends":       frame(1, 1, 0xff, 0xff, 'x'),
		"an answer to no question":     frame(10, 0, 0, 0, 0, 1, 1),
		"a window that is half a word": append(bytes.Clone(open), frame(5, 1, 0, 0)...),
		"endless room":                 append(bytes.Clone(open), frame(5, 1, 0x7f, 0xff, 0xff, 0xff)...),
		"room of 2 GiB":                append(bytes.Clone(open), frame(5, 1, 0x80, 0, 0, 0)...),
		"room of 4 GiB":                append(bytes.Clone(open), frame(5, 1, 0xff, 0xff, 0xff, 0xff)...),
		"room that wraps around":       append(append(bytes.Clone(open), frame(5, 1, 1, 0, 0, 0)...), frame(5, 1, 0xff, 0xff, 0xff, 0xff)...),
		"an unknown kind":              append(bytes.Clone(open), frame(77, 1)...),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			near, far := stream(t)
			defer near.Close()
			server, channels, _ := sshmux.New(far, sshmux.Options{Server: true})
			go func() {
				for range channels { // nobody reads from them
				}
			}()
			go near.Write(data)
			over := make(chan error, 1)
			go func() { over <- server.Wait() }()
			select {
			case err := <-over:
				if err == nil || errors.Is(err, io.EOF) {
					t.Errorf("got %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the connection is still there")
				server.Close()
				<-over
			}
		})
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(frame(1, 1, append([]byte{0, 7}, "session"...)...))
	f.Add(append(frame(1, 1, append([]byte{0, 7}, "session"...)...), frame(8, 1, append([]byte{0, 4}, "exec\x00\x00\x00\x03cat"...)...)...))
	f.Add(frame(9, 0, append([]byte{0, 9}, "keepalive\x00\x00\x00\x01"...)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		near, far := net.Pipe()
		server, channels, _ := sshmux.New(far, sshmux.Options{Server: true})
		go serve(channels)
		go io.Copy(io.Discard, near)
		near.Write(data)
		near.Close()
		server.Wait()
	})
}

func BenchmarkDownload(b *testing.B) {
	client, _, channels := pair(b, sshmux.Options{})
	ch, _, err := client.OpenChannel("session", nil)
	if err != nil {
		b.Fatal(err)
	}
	far, _, err := (<-channels).Accept()
	if err != nil {
		b.Fatal(err)
	}
	go io.Copy(io.Discard, ch)
	buf := make([]byte, 128<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := far.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}
