package bridge_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds every wait.
const deadline = 30 * time.Second

func pipe(t testing.TB) (near, far net.Conn) {
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

func newKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// between starts a bridge between an SSH client and an agent. It returns the client's end of the pipe. serve acts as the agent on its end
// of the mesh connection. ended receives the result of Serve.
func between(t testing.TB, serve func(net.Conn)) (client net.Conn, ended <-chan error) {
	t.Helper()
	client, local := pipe(t)
	remote, agent := pipe(t)
	b := bridge.Start(local, bridge.Options{HostKey: newKey(t)})
	t.Cleanup(b.Close)
	served, result, over := make(chan struct{}), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(served)
		serve(agent)
	}()
	go func() {
		defer close(over)
		result <- b.Serve(remote)
	}()
	t.Cleanup(func() {
		client.Close()
		agent.Close()
		<-served
		<-over
	})
	return client, result
}

// connect is between, or betweenServer.
type connect func(t testing.TB, serve func(net.Conn)) (client net.Conn, ended <-chan error)

// atBoth runs a test with an SSH server for one client on a pipe, and with one for clients of a network.
func atBoth(t *testing.T, test func(*testing.T, connect)) {
	t.Parallel()
	t.Run("pipe", func(t *testing.T) { test(t, between) })
	t.Run("network", func(t *testing.T) { test(t, betweenServer) })
}

// agent acts as an agent that speaks the protocol.
func agent(serve func(*sshmux.Conn)) func(net.Conn) {
	return func(raw net.Conn) {
		conn := sshmux.New(raw, sshmux.Options{Server: true, Global: func(name string, _ []byte) (bool, []byte) {
			return strings.HasSuffix(name, "forward"), []byte{0, 0, 0x1f, 0x90}
		}})
		serve(conn)
		conn.Close()
		conn.Wait()
	}
}

// handshake returns an SSH client on a connection.
func handshake(t testing.TB, raw net.Conn) *ssh.Client {
	t.Helper()
	conn, channels, requests, err := ssh.NewClientConn(raw, "", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	client := ssh.NewClient(conn, channels, requests)
	t.Cleanup(func() { client.Close() })
	return client
}

func exitStatus(channel *sshmux.Channel, code byte) {
	channel.SendRequest("exit-status", false, []byte{0, 0, 0, code})
	channel.Close()
}

// programs serves sessions: "upper" returns its input in upper case after the input ends, and others write to stderr and fail.
func programs(conn *sshmux.Conn) {
	for request := range conn.Channels() {
		channel, err := request.Accept()
		if err != nil {
			return
		}
		go func() {
			for req := range channel.Requests() {
				req.Reply(req.Type == "exec")
				switch {
				case req.Type != "exec":
				case string(req.Payload[4:]) == "upper":
					go func() {
						data, _ := io.ReadAll(channel)
						channel.Write(bytes.ToUpper(data))
						exitStatus(channel, 0)
					}()
				default:
					fmt.Fprint(channel.Stderr(), "no such program")
					exitStatus(channel, 127)
				}
			}
		}()
	}
}

// TestSessions checks that what an agent sends at once reaches the client in order: the answer, the output, the status, the end.
func TestSessions(t *testing.T) { atBoth(t, testSessions) }

func testSessions(t *testing.T, between connect) {
	t.Parallel()
	raw, ended := between(t, agent(programs))
	client := handshake(t, raw)
	data := bytes.Repeat([]byte("abcdefgh"), 1<<20) // more than any window
	for range 2 {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		s.Stdin = bytes.NewReader(data)
		if got, err := s.Output("upper"); err != nil || !bytes.Equal(got, bytes.ToUpper(data)) {
			t.Fatalf("upper: got %d bytes, %v; want %d", len(got), err, len(data))
		}
	}
	for range 300 {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		s.Stderr = &stderr
		err = s.Run("nothing")
		if exit, ok := errors.AsType[*ssh.ExitError](err); !ok || exit.ExitStatus() != 127 || stderr.String() != "no such program" {
			t.Fatalf("nothing: got %v, %q", err, stderr.String())
		}
	}
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestSubsystem("nothing"); err == nil {
		t.Error("a subsystem that the agent refuses: got success")
	}
	client.Close()
	if err := <-ended; err != nil {
		t.Errorf("when the client disconnects: got %v, want no error", err)
	}
}

// TestRequestsDoNotWait checks that the agent receives all of OpenSSH's requests, which it sends at once, before it has answered any of
// them, and that OpenSSH acts on the answers.
func TestRequestsDoNotWait(t *testing.T) { atBoth(t, testRequestsDoNotWait) }

func testRequestsDoNotWait(t *testing.T, between connect) {
	t.Parallel()
	for refused, want := range map[string]struct {
		stdout, stderr string
		status         int
	}{
		"":        {"it runs\n", "", 5},
		"pty-req": {"", "PTY allocation request failed", 255},
		"exec":    {"", "exec request failed", 255},
	} {
		got := make(chan []string, 1)
		raw, _ := between(t, agent(func(conn *sshmux.Conn) {
			request, ok := <-conn.Channels()
			if !ok {
				return
			}
			channel, err := request.Accept()
			if err != nil {
				return
			}
			var unanswered []*sshmux.Request
			var types []string
			for len(types) == 0 || types[len(types)-1] != "exec" {
				req, ok := <-channel.Requests()
				if !ok {
					break
				}
				unanswered, types = append(unanswered, req), append(types, req.Type)
			}
			got <- types
			for _, req := range unanswered {
				req.Reply(req.Type != refused)
			}
			if refused == "" {
				io.WriteString(channel, "it runs\n")
			}
			exitStatus(channel, 5)
			conn.Wait() // until OpenSSH disconnects
		}))
		stdout, stderr, status := openSSH(t, raw, "-tt", "-o", "SetEnv=A=b", "host", "true")
		if types := strings.Join(<-got, " "); !strings.HasPrefix(types, "pty-req env") || !strings.HasSuffix(types, "exec") {
			t.Errorf("the agent got %q", types)
		}
		if stdout != want.stdout || status != want.status || !strings.Contains(stderr, want.stderr) {
			t.Errorf("without %q: got %q, %q, status %d; want %+v", refused, stdout, stderr, status, want)
		}
	}
}

// openSSH runs ssh on a connection.
func openSSH(t *testing.T, raw net.Conn, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			io.Copy(raw, conn)
			raw.Close()
		}()
		io.Copy(conn, raw)
		conn.Close()
	}()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	options := []string{"-F", "none", "-p", port, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "IdentityFile=none", "-o", "IdentityAgent=none", "-o", "HostName=127.0.0.1"}
	cmd := exec.CommandContext(t.Context(), "ssh", append(options, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestInputIsInOrder checks that input sent after a request arrives after it.
func TestInputIsInOrder(t *testing.T) { atBoth(t, testInputIsInOrder) }

func testInputIsInOrder(t *testing.T, between connect) {
	t.Parallel()
	const rounds = 200
	raw, _ := between(t, agent(func(conn *sshmux.Conn) {
		request, ok := <-conn.Channels()
		if !ok {
			return
		}
		channel, err := request.Accept()
		if err != nil {
			return
		}
		seen := 0
		one := make([]byte, 1)
		for n := range rounds {
			if _, err := channel.Read(one); err != nil {
				return
			}
			for len(channel.Requests()) > 0 {
				<-channel.Requests()
				seen++
			}
			channel.Write([]byte{byte(seen - n)}) // 1: the request before this byte has arrived
		}
	}))
	channel, requests, err := handshake(t, raw).OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	one := make([]byte, 1)
	for n := range rounds {
		if _, err := channel.SendRequest("window-change", false, make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		channel.Write(one)
		if _, err := io.ReadFull(channel, one); err != nil || one[0] != 1 {
			t.Fatalf("round %d: got %v, %v; want the request before the byte", n, one, err)
		}
	}
}

// TestEnds checks that the handshake does not wait for the agent, and that neither end waits for the other to finish.
func TestEnds(t *testing.T) {
	t.Parallel()
	client, local := pipe(t)
	b := bridge.Start(local, bridge.Options{HostKey: newKey(t)})
	early := handshake(t, client) // without an agent so far
	b.Close()
	b.Close()
	if err := early.Wait(); !errors.Is(err, io.EOF) {
		t.Errorf("a client whose bridge was closed: got %v, want the end", err)
	}
	if err := b.Serve(client); err != nil {
		t.Errorf("after Close: got %v", err)
	}

	silent, unheard := pipe(t) // a client that has not finished its handshake
	waiting := bridge.Start(unheard, bridge.Options{HostKey: newKey(t)})
	near, far := net.Pipe()
	far.Close()
	if err := waiting.Serve(near); !errors.Is(err, bridge.ErrUnused) || !errors.Is(err, sshmux.ErrEarly) {
		t.Errorf("an agent that leaves before the handshake is over: got %v, want %v", err, bridge.ErrUnused)
	}
	silent.Close()
	waiting.Close()

	release := make(chan struct{})
	raw, ended := between(t, agent(func(*sshmux.Conn) { <-release }))
	conn := handshake(t, raw)
	channel, _, err := conn.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, channel)
		ends <- err
	}()
	close(release)
	if err := <-ended; err == nil {
		t.Error("when the agent disconnects: got no error")
	}
	select { // OpenSSH's user must first be able to read the reason
	case <-ends:
		t.Fatal("a session ended with the agent's connection, before Close")
	default:
	}
	conn.Close()
	<-ends

	raw, ended = between(t, agent(func(conn *sshmux.Conn) { conn.Wait() }))
	old := &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()}
	old.KeyExchanges = []string{ssh.InsecureKeyExchangeDH1SHA1}
	if _, _, _, err := ssh.NewClientConn(raw, "", old); err == nil {
		t.Error("a client with an outdated key exchange: got no error")
	}
	<-ended // an error, or nil if the client has already disconnected

	// Serve does not wait for an idle client either, such as one that asks its user about the key.
	_, ended = between(t, agent(func(*sshmux.Conn) {}))
	if err := <-ended; err == nil {
		t.Error("when the agent disconnects before the handshake: got no error")
	}

	_, ended = between(t, func(raw net.Conn) {
		io.WriteString(raw, "SMX\x7f")
		io.Copy(io.Discard, raw)
		raw.Close()
	})
	if err := <-ended; !errors.Is(err, sshmux.ErrVersion) {
		t.Errorf("an agent of another version: got %v", err)
	}
}

// TestForwards checks that an agent may open channels for a requested forward. It is the counterpart of TestHostileAgent.
func TestForwards(t *testing.T) { atBoth(t, testForwards) }

func testForwards(t *testing.T, between connect) {
	t.Parallel()
	asked := make(chan struct{})
	raw, ended := between(t, agent(func(conn *sshmux.Conn) {
		go func() {
			<-asked
			address := ssh.Marshal(struct {
				Host       string
				Port       uint32
				Origin     string
				OriginPort uint32
			}{"127.0.0.1", 8080, "127.0.0.1", 1})
			channel, err := conn.Open("forwarded-tcpip", address)
			if err != nil {
				t.Error(err)
				return
			}
			channel.Write([]byte("hello"))
			channel.CloseWrite()
			if answer, err := io.ReadAll(channel); err != nil || string(answer) != "HELLO" {
				t.Errorf("the forward's answer: got %q, %v", answer, err)
			}
			channel.Close()
			// The client also decides.
			if _, err := conn.OpenConfirmed("forwarded-tcpip", []byte("nonsense")); err == nil {
				t.Error("a forward that the client does not know was opened")
			}
			conn.Close()
		}()
		for request := range conn.Channels() {
			request.Reject(ssh.ConnectionFailed, "connection refused, truly")
		}
	}))
	client := handshake(t, raw)
	l, err := client.Listen("tcp", "127.0.0.1:0")
	if err != nil || l.Addr().(*net.TCPAddr).Port != 8080 {
		t.Fatalf("listen: got %v, %v; want the agent's port", l, err)
	}
	var refused *ssh.OpenChannelError
	if _, err := client.Dial("tcp", "127.0.0.1:1"); !errors.As(err, &refused) || refused.Reason != ssh.ConnectionFailed || refused.Message != "connection refused, truly" {
		t.Errorf("a forward that the agent refuses: got %v", err)
	}
	close(asked)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	conn.Write(bytes.ToUpper(data))
	conn.Close()
	<-ended
}

// TestHostileAgent checks that an agent cannot open channels that were not requested, or an unlimited number of those that were.
func TestHostileAgent(t *testing.T) { atBoth(t, testHostileAgent) }

func testHostileAgent(t *testing.T, between connect) {
	t.Parallel()
	kinds := []string{"forwarded-tcpip", "forwarded-streamlocal@openssh.com", "x11", "auth-agent@openssh.com", "session", "direct-tcpip"}
	checked, done := make(chan struct{}), make(chan struct{}) // closed by the agent
	raw, _ := between(t, agent(func(conn *sshmux.Conn) {
		defer close(done)
		for _, kind := range kinds {
			var refused *ssh.OpenChannelError
			if _, err := conn.OpenConfirmed(kind, nil); !errors.As(err, &refused) || refused.Reason != ssh.Prohibited {
				t.Errorf("%s: got %v, want it prohibited", kind, err)
			}
		}
		if ok, _, err := conn.SendRequest("hostkeys-00@openssh.com", true, nil); ok || err != nil {
			t.Errorf("a request for the whole connection: got %t, %v", ok, err)
		}
		close(checked)
		request, ok := <-conn.Channels()
		if !ok {
			return
		}
		channel, err := request.Accept()
		if err != nil {
			return
		}
		req := <-channel.Requests()
		req.Reply(true)
		// The client never answers these. The bridge keeps them for the client even if the agent closes them immediately.
		for range 700 {
			held, err := conn.Open("auth-agent@openssh.com", nil)
			if err != nil {
				t.Error(err)
				return
			}
			held.Close()
		}
		probe, err := conn.OpenConfirmed("auth-agent@openssh.com", nil)
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage {
			t.Errorf("one channel of hundreds: got %v, %v; want a refusal", probe, err)
		}
	}))
	local, channels, globals, err := ssh.NewClientConn(raw, "", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	go ssh.DiscardRequests(globals)
	held := make(chan int, 1)
	go func() {
		n := 0
		for range channels { // without ever answering
			n++
		}
		held <- n
	}()
	channel, requests, err := local.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	<-checked
	if ok, err := channel.SendRequest("auth-agent-req@openssh.com", true, nil); !ok || err != nil {
		t.Fatalf("got %t, %v", ok, err)
	}
	select {
	case <-done:
	case <-time.After(deadline):
		t.Fatal("the agent was not refused")
	}
	local.Close()
	if n := <-held; n > 256 {
		t.Errorf("the client was asked for %d channels, want at most 256", n)
	}
}

func frame(kind byte, channel uint32, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(5+len(body)))
	return append(binary.BigEndian.AppendUint32(append(b, kind), channel), body...)
}

// FuzzAgent feeds a bridge with arbitrary input from an agent while a session is open.
func FuzzAgent(f *testing.F) {
	f.Add(append(frame(10, 1, "\x01"), frame(4, 1, "output")...))
	f.Add(append(frame(5, 1, "alas"), append(frame(7, 1, ""), frame(9, 1, "\x01\x00\x03eow")...)...))
	f.Add(frame(1, 1<<31|1, "\x01\x00\x00\x01\x00\x00\x03x11"))
	f.Add(frame(3, 1, "\x00\x00\x00\x04too many"))
	f.Fuzz(func(t *testing.T, data []byte) {
		near, local := net.Pipe()
		remote, agent := net.Pipe()
		b := bridge.Start(local, bridge.Options{HostKey: newKey(t)})
		over := make(chan struct{})
		go func() { defer close(over); b.Serve(remote) }()
		go io.Copy(io.Discard, agent)
		client := handshake(t, near)
		channel, requests, err := client.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		go ssh.DiscardRequests(requests)
		go channel.SendRequest("exec", true, []byte("\x00\x00\x00\x04true"))
		go io.Copy(io.Discard, channel)
		agent.Write(append([]byte("SMX\x02"), data...))
		agent.Close()
		<-over
		b.Close()
		client.Wait()
	})
}
