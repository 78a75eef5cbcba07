package sshgateway_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/sshmux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with a gateway, and Ann's workspace dev with an agent that repeats each command.
type world struct {
	*coderdtest.Server
	addr      string
	template  uuid.UUID
	workspace uuid.UUID
	keys      map[string]ssh.Signer // by user
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{addr: l.Addr().String(), keys: map[string]ssh.Signer{}}
	w.Server = coderdtest.Start(t, func(o *coderd.Options) { o.SSH, o.SSHAccess = l, w.addr })
	w.template = w.Template("process", nil).ID
	ws, agent := w.Running("ann", "dev", w.template)
	w.workspace = ws.ID
	m := w.join(agent)
	m.Serve(meshport.SSH, func(conn net.Conn) { _, _ = io.WriteString(conn, "SSH-2.0-the agent\r\n"); conn.Close() })
	m.Serve(meshport.AgentRPC, func(conn net.Conn) { t.Error("a client reached the agent's calls"); conn.Close() })
	return w
}

// join joins an agent that repeats each command.
func (w *world) join(agent uuid.UUID) *coderdtest.Member {
	w.T.Helper()
	m := w.Join(coderdtest.AsAgent(coderdtest.Token(agent).Reveal()))
	m.Serve(meshport.Session, func(raw net.Conn) {
		conn := sshmux.New(raw, sshmux.Options{Server: true})
		defer conn.Close()
		for channel := range conn.Channels() {
			go repeat(channel)
		}
	})
	return m
}

// repeat serves a session whose output is its command.
func repeat(newChannel *sshmux.NewChannel) {
	if newChannel.Type() != "session" {
		_ = newChannel.Reject(ssh.Prohibited, "the agent says no")
		return
	}
	channel, err := newChannel.Accept()
	if err != nil {
		return
	}
	for req := range channel.Requests() {
		_ = req.Reply(req.Type == "exec")
		if req.Type == "exec" && string(req.Payload[4:]) != "stay" {
			_, _ = channel.Write(req.Payload[4:])
			_, _ = channel.SendRequest("exit-status", false, []byte{0, 0, 0, 0})
			channel.Close()
		}
	}
}

// key returns the key of a user, which the first call registers.
func (w *world) key(t *testing.T, user string) ssh.Signer {
	t.Helper()
	if w.keys[user] == nil {
		w.keys[user] = newKey(t)
		w.register(t, user, w.keys[user], "laptop")
	}
	return w.keys[user]
}

func (w *world) register(t *testing.T, user string, key ssh.Signer, name string) sdk.UserSSHKey {
	t.Helper()
	made, err := w.As(user).CreateUserSSHKey(t.Context(), sdk.Me, sdk.CreateUserSSHKeyRequest{Name: name, PublicKey: string(ssh.MarshalAuthorizedKey(key.PublicKey()))})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// dial signs in as an SSH client does, for the workspace that name means.
func (w *world) dial(t *testing.T, name string, keys ...ssh.Signer) (*ssh.Client, error) {
	t.Helper()
	gateway, err := w.As("olga").SSHGateway(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(gateway.HostKey))
	if err != nil || gateway.Address != w.addr || !gateway.Enabled || gateway.Fingerprint != ssh.FingerprintSHA256(host) {
		t.Fatalf("the gateway is %+v, %v", gateway, err)
	}
	c, err := ssh.Dial("tcp", w.addr, &ssh.ClientConfig{User: name, Auth: []ssh.AuthMethod{ssh.PublicKeys(keys...)}, HostKeyCallback: ssh.FixedHostKey(host), HostKeyAlgorithms: []string{host.Type()}})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// client is dial for a user who may sign in.
func (w *world) client(t *testing.T, user, name string) *ssh.Client {
	t.Helper()
	c, err := w.dial(t, name, w.key(t, user))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// says runs a command, and returns its output and what was written to stderr.
func says(t *testing.T, c *ssh.Client) (stdout, stderr string) {
	t.Helper()
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var out, errs bytes.Buffer
	session.Stdout, session.Stderr = &out, &errs
	_ = session.Run("hello") // what it writes tells how it went
	return out.String(), errs.String()
}

// TestNames: each way to write a workspace's name leads to it.
func TestNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	testwait.Until(t, "the agent is reached", func() error {
		out, errs := says(t, w.client(t, "ann", "dev"))
		return testwait.Equal(out+errs, "hello")
	})
	for _, name := range []string{"dev.main", "ann/dev", "ann/dev.main", "ann--dev", "ann--dev.main", "ann+dev", "ann+dev.main", "me/dev", "ANN/DEV"} {
		if out, errs := says(t, w.client(t, "ann", name)); out != "hello" {
			t.Errorf("%s: %q, %q", name, out, errs)
		}
	}
	for _, name := range []string{"nothing", "bob/dev", "dev.other", "ann/dev/main", "", "ann/", "dev\x1b[2J", strings.Repeat("x", 10_000), "ann@dev", "%", "dev\x00"} {
		out, errs := says(t, w.client(t, "ann", name))
		if out != "" || !strings.HasPrefix(errs, "No running workspace that you may connect to has the name") || strings.ContainsAny(errs, "\x1b\x00") || len(errs) > 1000 {
			t.Errorf("%.20q: %q, %q", name, out, errs)
		}
	}
	testwait.Until(t, "the connections are in the log", func() error {
		log, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "type:ssh", Limit: 100})
		if err != nil {
			return err
		}
		for _, row := range log.ConnectionLogs {
			if info := row.SSHInfo; row.IP != "127.0.0.1" || row.WorkspaceName != "dev" || info == nil {
				return fmt.Errorf("row %+v", row)
			}
		}
		return testwait.Unless(len(log.ConnectionLogs) >= 10, "%d rows", len(log.ConnectionLogs))
	})
}

// TestStrangers: other users learn nothing of a workspace, and who has no registered key cannot sign in.
func TestStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, theirs := says(t, w.client(t, "bob", "ann/dev"))
	_, nothing := says(t, w.client(t, "bob", "ann/nothing"))
	if strings.ReplaceAll(theirs, "ann/dev", "") != strings.ReplaceAll(nothing, "ann/nothing", "") || theirs == "" {
		t.Errorf("Bob is told %q, and of a workspace that does not exist %q", theirs, nothing)
	}
	if _, errs := says(t, w.client(t, "olga", "ann/dev")); errs == "" {
		t.Error("an owner of the deployment reached a workspace that is not shared")
	}
	if c, err := w.dial(t, "ann/dev", newKey(t)); err == nil {
		c.Close()
		t.Error("a key that is not registered signs in")
	}
	if c, err := w.dial(t, "ann/dev"); err == nil {
		c.Close()
		t.Error("no key signs in")
	}
	bob := w.User("bob")
	if err := w.As("ann").UpdateWorkspaceACL(t.Context(), w.workspace, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob.String(): "use"}}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "Bob reaches what is shared with him", func() error {
		out, errs := says(t, w.client(t, "bob", "ann/dev"))
		return testwait.Equal(out+errs, "hello")
	})
}

// staying opens a session that stays, and returns a channel that is closed when the server ends it.
func (w *world) staying(t *testing.T, user, name string) <-chan struct{} {
	t.Helper()
	ended := make(chan struct{})
	testwait.Until(t, "a session stays", func() error {
		c := w.client(t, user, name)
		session, err := c.NewSession()
		if err != nil {
			return err
		}
		if err := session.Start("stay"); err != nil {
			return err
		}
		go func() {
			defer close(ended)
			_ = c.Wait() // an error, as the server ends it
		}()
		return nil
	})
	return ended
}

// TestRevocations: a session ends when its user may no longer have it.
func TestRevocations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.User("bob")
	share := func(role string) {
		t.Helper()
		if err := w.As("ann").UpdateWorkspaceACL(t.Context(), w.workspace, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob.String(): role}}); err != nil {
			t.Fatal(err)
		}
	}
	share("use")
	anns, bobs := w.staying(t, "ann", "dev"), w.staying(t, "bob", "ann/dev")
	share("")
	testwait.For(t, "Bob's session ends when the workspace is not shared any more", bobs)

	other := newKey(t)
	made := w.register(t, "ann", other, "phone")
	w.keys["ann"], other = other, w.keys["ann"]
	phone := w.staying(t, "ann", "dev")
	if err := w.As("ann").DeleteUserSSHKey(t.Context(), sdk.Me, made.ID); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the session of a removed key ends", phone)
	w.keys["ann"] = other
	select {
	case <-anns:
		t.Error("the session of another key ended")
	default:
	}
	short := newKey(t)
	w.register(t, "ann", short, "short")
	w.keys["ann"] = short
	brief := w.staying(t, "ann", "dev")
	w.Exec("UPDATE user_ssh_keys SET expires_at = now() + interval '1 second' WHERE name = 'short'")
	w.Exec("SELECT pg_notify('users_revoked', $1)", bob.String()) // any revocation makes the server look for the next key that expires
	testwait.For(t, "the session of a key that expires ends", brief)
	w.keys["ann"] = other

	share("use")
	bobs = w.staying(t, "bob", "ann/dev")
	fresh := sdk.UpdateUserPasswordRequest{Password: "Staple-Battery-7-Horse", EndTokens: true}
	if err := w.As("olga").UpdateUserPassword(t.Context(), "bob", fresh); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the session ends when a new password ends the user's tokens", bobs)
	if c, err := w.dial(t, "ann/dev", w.keys["bob"]); err == nil {
		c.Close()
		t.Error("the key of a user whose tokens were ended signs in")
	}

	if _, err := w.As("olga").SuspendUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the session of a suspended user ends", anns)
	if c, err := w.dial(t, "dev", w.keys["ann"]); err == nil {
		c.Close()
		t.Error("a suspended user signs in")
	}
}

// TestJump: the gateway passes a client on to the SSH port of an agent by name, and to no other port of the mesh.
func TestJump(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var client *ssh.Client
	testwait.Until(t, "the agent is reached", func() error {
		client = w.client(t, "ann", "whatever")
		conn, err := client.Dial("tcp", "dev.coder:22")
		if err != nil {
			return err
		}
		defer conn.Close()
		banner, err := io.ReadAll(conn)
		return errors.Join(err, testwait.Equal(string(banner), "SSH-2.0-the agent\r\n"))
	})
	for _, name := range []string{"dev.ann.coder", "main.dev.ann.coder", "DEV.ANN.coder", "dev.coder."} {
		conn, err := client.Dial("tcp", name+":22")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		conn.Close()
	}
	for name, want := range map[string]string{
		"nothing.coder:22": "No running workspace", "dev.bob.coder:22": "No running workspace", "a.b.c.d.coder:22": "No running workspace",
		".coder:22": "No running workspace", "dev.coder:4": "No running workspace", "127.0.0.1:4": "No running workspace",
	} {
		conn, err := client.Dial("tcp", name) // what is no workspace's SSH is the agent's that the user name means: none here
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	own := w.client(t, "ann", "dev")
	if _, err := own.Dial("tcp", "127.0.0.1:4"); err == nil || !strings.Contains(err.Error(), "the agent says no") {
		t.Errorf("a forward: %v, want the agent's answer", err)
	}
	strange := w.client(t, "bob", "whatever")
	if _, err := strange.Dial("tcp", "dev.ann.coder:22"); err == nil || !strings.Contains(err.Error(), "No running workspace") {
		t.Errorf("Bob: %v", err)
	}
}

// TestWake: a stopped workspace starts when its owner connects, who is told so, and when no one else does.
func TestWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cold, _ := w.Running("ann", "cold", w.template)
	w.Build("ann", cold.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built(""))
	testwait.Until(t, "it is stopped", w.Is(cold.ID, sdk.WorkspaceStopped))
	bob := w.User("bob")
	if err := w.As("ann").UpdateWorkspaceACL(t.Context(), cold.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob.String(): "admin"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann/cold", "cold"} {
		if out, errs := says(t, w.client(t, "bob", name)); out != "" || !strings.HasPrefix(errs, "No running workspace") {
			t.Errorf("Bob, who may not start it, is told %q, %q", out, errs)
		}
	}
	connect := func() <-chan string {
		c, said := w.client(t, "ann", "cold.main"), make(chan string, 1)
		go func() {
			out, errs := says(t, c)
			said <- out + "|" + errs
		}()
		return said
	}
	const starting = "Starting the workspace \"cold.main\" …\r\n"
	said := connect()
	w.Daemon().Next().Finish(&provisionerpb.Result{Error: "no such image"})
	if got := testwait.For(t, "Ann hears of the failure", said); !strings.HasPrefix(got, "|"+starting+"The start of the workspace \"cold\" failed: no such image\r\n") {
		t.Errorf("of a start that failed Ann is told %q", got)
	}
	said = connect()
	agent := uuid.New()
	w.Daemon().Next().Finish(coderdtest.Built("state", coderdtest.Resource(agent)))
	w.join(agent)
	if got := testwait.For(t, "Ann's command runs", said); !strings.HasPrefix(got, "hello|"+starting) {
		t.Errorf("Ann is told %q", got)
	}
	log, err := w.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: "action:start username:ann resource_target:cold", Limit: 10})
	if err != nil || len(log.AuditLogs) < 2 || w.Get(cold.ID).LatestBuild.Reason != sdk.ReasonSSH {
		t.Errorf("the audit log has %+v, %v; the build's reason is %s", log, err, w.Get(cold.ID).LatestBuild.Reason)
	}
}

// TestStartScripts: a session waits for the scripts that block logins, and its client is told so.
func TestStartScripts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("UPDATE workspace_agents SET startup_script_behavior = 'blocking', lifecycle_state = 'starting'")
	said := make(chan string, 1)
	c := w.client(t, "ann", "dev")
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := session.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		out, err := session.Output("hello")
		said <- fmt.Sprint(string(out), err)
	}()
	want := "Waiting for the start scripts that block logins …\r\n"
	text := make([]byte, len(want))
	if _, err := io.ReadFull(stderr, text); err != nil || string(text) != want {
		t.Fatalf("Ann is told %q, %v", text, err)
	}
	select {
	case got := <-said:
		t.Errorf("the session did not wait: %s", got)
	default:
	}
	w.Exec("UPDATE workspace_agents SET lifecycle_state = 'ready'")
	if got := testwait.For(t, "the session begins", said); got != "hello<nil>" {
		t.Errorf("got %s", got)
	}
}

// TestNoGateway: a server without an address for SSH says so.
func TestNoGateway(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	if got, err := w.As("ann").SSHGateway(t.Context()); err != nil || got.Enabled || got.Address != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}
