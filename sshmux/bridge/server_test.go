package bridge_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
	"google.golang.org/grpc/test/bufconn"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

// serving starts a server, and returns a function that connects a client to it.
func serving(t testing.TB, opts bridge.ServerOptions) (connect func() net.Conn) {
	t.Helper()
	key := newKey(t)
	opts.HostKeys = func(context.Context) []ssh.Signer { return []ssh.Signer{key} }
	s, l := bridge.NewServer(opts), bufconn.Listen(1<<20)
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		served.Wait()
	})
	return func() net.Conn {
		conn, err := l.DialContext(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// dialing returns what Dial does: it connects to serve, which acts as the agent.
func dialing(t testing.TB, serve func(net.Conn)) func(context.Context, *ssh.ServerConn, func(string)) (net.Conn, error) {
	var agents sync.WaitGroup
	t.Cleanup(agents.Wait)
	return func(context.Context, *ssh.ServerConn, func(string)) (net.Conn, error) {
		near, far := pipe(t)
		agents.Go(func() {
			serve(far)
			far.Close()
		})
		return near, nil
	}
}

// betweenServer is between with a server for clients of a network that need not sign in.
func betweenServer(t testing.TB, serve func(net.Conn)) (client net.Conn, ended <-chan error) {
	t.Helper()
	over := make(chan error)
	connect := serving(t, bridge.ServerOptions{Dial: dialing(t, func(conn net.Conn) {
		defer close(over)
		serve(conn)
	})})
	return connect(), over
}

// people are the keys of two people, who are known by name.
type people struct {
	ada, bob ssh.Signer
	mu       sync.Mutex
	signedIn []string
}

func (p *people) name(key ssh.PublicKey) string {
	for name, signer := range map[string]ssh.Signer{"ada": p.ada, "bob": p.bob} {
		if bytes.Equal(signer.PublicKey().Marshal(), key.Marshal()) {
			return name
		}
	}
	return ""
}

func (p *people) Known(_ context.Context, key ssh.PublicKey) bool { return p.name(key) != "" }

func (p *people) SignIn(client ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signedIn = append(p.signedIn, client.User()+" by "+p.name(key))
	if client.User() == "suspended" {
		return nil, errors.New("suspended")
	}
	return &ssh.Permissions{ExtraData: map[any]any{"name": p.name(key)}}, nil
}

// keyFile writes a signer's private key where OpenSSH finds it, with its public one beside it.
func keyFile(t *testing.T, private ed25519.PrivateKey) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{path: pem.EncodeToMemory(block), path + ".pub": ssh.MarshalAuthorizedKey(signer.PublicKey())} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestSignIn: OpenSSH signs in with a key that it has, and with no other. A key that it only offers, here Bob's, of which it has the
// public half, counts for nothing.
func TestSignIn(t *testing.T) {
	t.Parallel()
	_, adas, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, bobs, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &people{}
	if p.ada, err = ssh.NewSignerFromKey(adas); err != nil {
		t.Fatal(err)
	}
	if p.bob, err = ssh.NewSignerFromKey(bobs); err != nil {
		t.Fatal(err)
	}
	served := make(chan string, 1)
	dial := dialing(t, agent(programs))
	connect := serving(t, bridge.ServerOptions{Keys: p, Dial: func(ctx context.Context, client *ssh.ServerConn, say func(string)) (net.Conn, error) {
		served <- client.User() + " of " + client.Permissions.ExtraData["name"].(string)
		return dial(ctx, client, say)
	}})
	ada, bob := keyFile(t, adas), keyFile(t, bobs)
	if err := os.Remove(bob); err != nil {
		t.Fatal(err)
	}
	run := func(user string, identities ...string) (stdout, stderr string, status int) {
		args := []string{"-o", "IdentitiesOnly=yes", "-o", "PasswordAuthentication=no", "-l", user}
		for _, path := range identities {
			args = append(args, "-i", path)
		}
		return openSSH(t, connect(), append(args, "host", "upper")...)
	}
	if _, stderr, status := run("dev", bob+".pub", ada); status != 0 {
		t.Errorf("Ada: status %d\n%s", status, stderr)
	}
	if got := testwait.For(t, "the agent is dialed", served); got != "dev of ada" {
		t.Errorf("the client is %s, want dev of ada", got)
	}
	p.mu.Lock()
	if got := strings.Join(p.signedIn, ", "); got != "dev by ada" {
		t.Errorf("signed in: %s; want the key that was proven only", got)
	}
	p.mu.Unlock()
	for name, attempt := range map[string]struct {
		user string
		keys []string
	}{"no key": {"dev", nil}, "only a public key": {"dev", []string{bob + ".pub"}}, "suspended": {"suspended", []string{ada}}} {
		if stdout, stderr, status := run(attempt.user, attempt.keys...); status != 255 || !strings.Contains(stderr, "Permission denied") {
			t.Errorf("%s: status %d, %q, %q", name, status, stdout, stderr)
		}
	}
	select {
	case who := <-served:
		t.Errorf("the agent was dialed for %s", who)
	default:
	}
}

// TestNoAgent: a client without an agent is told why, in its session.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	connect := serving(t, bridge.ServerOptions{Dial: func(context.Context, *ssh.ServerConn, func(string)) (net.Conn, error) {
		return nil, errors.New("The workspace \"dev\" is not running.\nStart it with: coder start dev") //nolint:revive,staticcheck // for people
	}})
	stdout, stderr, status := openSSH(t, connect(), "-tt", "host", "true")
	if want := "The workspace \"dev\" is not running.\r\nStart it with: coder start dev\r\n"; stdout != "" || stderr != want || status != 255 {
		t.Errorf("got %q, %q, status %d; want %q and 255", stdout, stderr, status, want)
	}
	c := handshake(t, connect())
	var refused *ssh.OpenChannelError
	if _, err := c.Dial("tcp", "127.0.0.1:80"); !errors.As(err, &refused) || !strings.HasPrefix(refused.Message, "The workspace") {
		t.Errorf("a forward: %v", err)
	}
	if _, err := c.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a remote forward: it was accepted")
	}
}

// TestAgentLeaves: a client learns that its agent is gone, and a server that ends waits for its clients.
func TestAgentLeaves(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	client, ended := betweenServer(t, func(net.Conn) { <-release })
	c := handshake(t, client)
	if _, _, err := c.OpenChannel("session", nil); err != nil {
		t.Fatal(err)
	}
	close(release)
	<-ended
	if err := c.Wait(); err == nil {
		t.Error("the client's connection ended without an error")
	}
	client, _ = betweenServer(t, agent(programs))
	handshake(t, client) // and stays connected
}

// TestClientLeavesFirst: nothing stays of a client that has left when its agent is dialed.
func TestClientLeavesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		connect := serving(t, bridge.ServerOptions{
			Jump: func(ctx context.Context, _ *ssh.ServerConn, _ string, _ uint32) (net.Conn, bool, error) {
				<-ctx.Done()
				time.Sleep(time.Second) // the server has done all it can for the client
				return nil, false, nil
			},
			Dial: func(context.Context, *ssh.ServerConn, func(string)) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer close(closed)
					_, _ = io.Copy(io.Discard, far) // ends when the other end is closed
				}()
				return near, nil
			},
		})
		conn := connect()
		c := handshake(t, conn)
		go c.Dial("tcp", "127.0.0.1:80") // fails, as the client leaves
		synctest.Wait()
		conn.Close()
		<-closed
	})
}

// TestAnotherTry: a client that stays connected reaches an agent that could not be reached before.
func TestAnotherTry(t *testing.T) {
	t.Parallel()
	dial, tries := dialing(t, agent(programs)), 0
	connect := serving(t, bridge.ServerOptions{Dial: func(ctx context.Context, client *ssh.ServerConn, say func(string)) (net.Conn, error) {
		if tries++; tries == 1 {
			return nil, errors.New("the workspace is not running")
		}
		return dial(ctx, client, say)
	}})
	c := handshake(t, connect())
	for try, want := range []string{"", "HELLO"} {
		session, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		session.Stdin = strings.NewReader("hello")
		if out, err := session.Output("upper"); string(out) != want || (err == nil) != (want != "") {
			t.Errorf("try %d: %q, %v", try, out, err)
		}
	}
}

// TestProgress: a client that waits for its agent is told what for, and its keepalives are answered meanwhile.
func TestProgress(t *testing.T) {
	t.Parallel()
	ready, saying := make(chan struct{}), make(chan struct{})
	dial := dialing(t, agent(programs))
	connect := serving(t, bridge.ServerOptions{Dial: func(ctx context.Context, client *ssh.ServerConn, say func(string)) (net.Conn, error) {
		say("Starting dev …")
		close(saying)
		<-ready
		return dial(ctx, client, say)
	}})
	c := handshake(t, connect())
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	session.Stderr, session.Stdin = &stderr, strings.NewReader("hello")
	testwait.For(t, "the agent is dialed", saying)
	if ok, _, err := c.SendRequest("keepalive@openssh.com", true, nil); ok || err != nil {
		t.Errorf("a keepalive: %v, %v", ok, err)
	}
	close(ready)
	if out, err := session.Output("upper"); string(out) != "HELLO" || stderr.String() != "Starting dev …\r\n" || err != nil {
		t.Errorf("got %q, %q, %v", out, stderr.String(), err)
	}
}

// TestTooManyChannels: a client cannot make the server hold an unlimited number of channels.
func TestTooManyChannels(t *testing.T) {
	t.Parallel()
	connect := serving(t, bridge.ServerOptions{Dial: func(context.Context, *ssh.ServerConn, func(string)) (net.Conn, error) {
		return nil, errors.New("no agent")
	}})
	c := handshake(t, connect())
	var refused *ssh.OpenChannelError
	for n := range 600 {
		_, _, err := c.OpenChannel("session", nil) // and never asks for a program
		if errors.As(err, &refused) && refused.Reason == ssh.ResourceShortage && n >= 500 {
			return
		}
		if err != nil {
			t.Fatalf("channel %d: %v", n, err)
		}
	}
	t.Error("600 channels were opened")
}

// TestManySilentClients: those that do not sign in are limited, and leave room when they are gone.
func TestManySilentClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connect := serving(t, bridge.ServerOptions{})
		refused := func(conn net.Conn) bool {
			_, err := conn.Read(make([]byte, 1))
			return err != nil
		}
		for n := range 100 {
			if refused(connect()) {
				t.Fatalf("client %d was refused", n)
			}
		}
		if !refused(connect()) {
			t.Error("one more client was accepted")
		}
		time.Sleep(time.Minute)
		handshake(t, connect())
	})
}

// TestSilentClients: a client that says nothing, or nothing more than its version, is disconnected after a while, and one that has signed in
// is not.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connect := serving(t, bridge.ServerOptions{Dial: func(context.Context, *ssh.ServerConn, func(string)) (net.Conn, error) {
			panic("no client asks for an agent")
		}})
		began := time.Now()
		silent, slow := connect(), connect()
		go slow.Write([]byte("SSH-2.0-slow\r\n"))
		c := handshake(t, connect())
		for name, conn := range map[string]net.Conn{"silent": silent, "slow": slow} {
			for buffer := make([]byte, 1<<10); ; {
				if _, err := conn.Read(buffer); err != nil {
					break
				}
			}
			if took := time.Since(began); took < 10*time.Second || took > time.Minute {
				t.Errorf("%s: disconnected after %s", name, took)
			}
		}
		time.Sleep(time.Hour)
		if ok, _, err := c.SendRequest("keepalive@openssh.com", true, nil); err != nil {
			t.Errorf("the client that signed in: %v, %v", ok, err)
		}
	})
}
