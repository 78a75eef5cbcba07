//go:build linux

package region_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/region"
)

// newSSHWorld is newWorld whose proxy has an SSH gateway.
func newSSHWorld(t *testing.T) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Server: coderdtest.Start(t), t: t, ssh: l}
	w.build(wildcard)
	return w
}

// sshKey registers a new key of a user, and allows it at regions.
func (w *world) sshKey(user string, regions ...string) (ssh.Signer, uuid.UUID) {
	w.t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		w.t.Fatal(err)
	}
	made, err := w.As(user).CreateUserSSHKey(w.t.Context(), sdk.Me, sdk.CreateUserSSHKeyRequest{
		Name: "k" + uuid.NewString()[:8], PublicKey: string(ssh.MarshalAuthorizedKey(key.PublicKey())), Regions: regions,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return key, made.ID
}

// sshClient signs in at the region as an SSH client does, which compares the host key with what the server says.
func (w *world) sshClient(name string, key ssh.Signer) (*ssh.Client, error) {
	w.t.Helper()
	gateway, err := w.As("ann").SSHGateway(w.t.Context())
	if err != nil || len(gateway.Regions) != 1 || gateway.Regions[0].Region != "eu" || gateway.Regions[0].Address != w.ssh.Addr().String() {
		w.t.Fatalf("the gateways are %+v, %v", gateway, err)
	}
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(gateway.Regions[0].HostKey))
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", w.ssh.Addr().String(), &ssh.ClientConfig{User: name, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(host)})
	if err == nil {
		w.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// runs runs a command in the workspace that a name means, over a new connection.
func (w *world) runs(name string, key ssh.Signer, command string) (stdout, stderr string) {
	w.t.Helper()
	c, err := w.sshClient(name, key)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	session, err := c.NewSession()
	if err != nil {
		w.t.Fatal(err)
	}
	defer session.Close()
	var out, errs bytes.Buffer
	session.Stdout, session.Stderr = &out, &errs
	_ = session.Run(command) // what it writes tells how it went
	return out.String(), errs.String()
}

// staysOpen opens a session that stays, and returns a channel that is closed when its connection ends.
func (w *world) staysOpen(key ssh.Signer) <-chan struct{} {
	w.t.Helper()
	c, err := w.sshClient("dev", key)
	if err != nil {
		w.t.Fatal(err)
	}
	session, err := c.NewSession()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := session.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := session.Start("echo open; cat"); err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("open\n"))); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // an error, as the region ends it
	}()
	return ended
}

// TestSSHAtRegion: a key that its user has allowed at a region reaches their workspace there, by its sessions and by a jump. It is in the connection log,
// and ends with the right.
func TestSSHAtRegion(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t)
	ann, id := w.sshKey("ann", "eu")
	if out, errs := w.runs("dev", ann, "echo $CODER_WORKSPACE_NAME; pwd >/dev/null"); out != "dev\n" {
		t.Fatalf("%q, %q", out, errs)
	}
	if out, errs := w.runs("ann--dev.main", ann, "echo a$((6*7))b >&2"); out != "" || errs != "a42b\n" {
		t.Errorf("%q, %q", out, errs)
	}
	testwait.Until(t, "the connections and their ends are in the log", func() error {
		log, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "type:ssh", Limit: 10})
		if err != nil {
			return err
		}
		ended := 0
		for _, c := range log.ConnectionLogs {
			if c.Region != "eu" || c.Username != "ann" || c.IP != "127.0.0.1" {
				return fmt.Errorf("row %+v", c)
			}
			if c.DisconnectReason == "closed by the client" && c.BytesIn > 0 && c.BytesOut > 0 {
				ended++
			}
		}
		return testwait.Unless(len(log.ConnectionLogs) == 2 && ended == 2, "%+v", log.ConnectionLogs)
	})

	jump, err := w.sshClient("x", ann)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := jump.Dial("tcp", "dev.ann.coder:22")
	if err != nil {
		t.Fatal(err)
	}
	var agentKey ssh.PublicKey
	inner, channels, requests, err := ssh.NewClientConn(conn, "dev", &ssh.ClientConfig{User: "x", HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
		agentKey = key
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	through := ssh.NewClient(inner, channels, requests)
	session, err := through.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := session.Output("echo jumped"); err != nil || string(out) != "jumped\n" {
		t.Errorf("%q, %v", out, err)
	}
	through.Close()
	if gateway, err := w.As("ann").SSHGateway(t.Context()); err != nil || ssh.FingerprintSHA256(agentKey) == gateway.Regions[0].Fingerprint {
		t.Errorf("a jump ended SSH in the region: %v", err)
	}

	open := w.staysOpen(ann)
	if _, err := w.As("ann").UpdateUserSSHKey(t.Context(), sdk.Me, id, sdk.UpdateUserSSHKeyRequest{}); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the session ends when the key is allowed here no more", open)
	phone, id := w.sshKey("ann", "eu")
	open = w.staysOpen(phone)
	if err := w.As("ann").DeleteUserSSHKey(t.Context(), sdk.Me, id); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the session of a removed key ends", open)
	last, _ := w.sshKey("ann", "eu")
	open = w.staysOpen(last)
	if err := w.As("olga").DeleteWorkspaceProxy(t.Context(), "eu"); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the sessions of a region that is deleted end", open)
}

// TestWhoSignsInAtRegions: a key that was not allowed here opens nothing, and its client is told what to do. Strangers do not sign in.
func TestWhoSignsInAtRegions(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t)
	elsewhere, _ := w.sshKey("ann")
	out, errs := w.runs("dev", elsewhere, "echo in")
	if out != "" || !strings.HasPrefix(errs, "This SSH key may not sign in at the region eu.\r\nAllow it with: coder ssh-key regions KEY eu") {
		t.Errorf("told %q, %q", out, errs)
	}
	jump, err := w.sshClient("dev", elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"dev.coder:22", "127.0.0.1:22"} {
		if conn, err := jump.Dial("tcp", to); err == nil {
			conn.Close()
			t.Errorf("%s is reached", to)
		}
	}
	bob, _ := w.sshKey("bob", "eu")
	for _, name := range []string{"ann/dev", "ann/nothing", "dev"} {
		if out, errs := w.runs(name, bob, "echo in"); out != "" || !strings.HasPrefix(errs, "No running workspace that you may connect to has the name") {
			t.Errorf("Bob, of %s, is told %q, %q", name, out, errs)
		}
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	ann, _ := w.sshKey("ann", "eu")
	made, err := w.As("ann").CreateSSHCertificate(t.Context(), sdk.CreateSSHCertificateRequest{PublicKey: string(ssh.MarshalAuthorizedKey(ann.PublicKey()))})
	if err != nil {
		t.Fatal(err)
	}
	parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(made.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	certified, err := ssh.NewCertSigner(parsed.(*ssh.Certificate), ann)
	if err != nil {
		t.Fatal(err)
	}
	for what, key := range map[string]ssh.Signer{"a stranger": stranger, "a certificate": certified, "a key that is not proven": borrowed{stranger, ann.PublicKey()}} {
		if c, err := w.sshClient("dev", key); err == nil {
			c.Close()
			t.Errorf("%s signs in", what)
		}
	}
}

// borrowed is a public key whose private key the client does not have.
type borrowed struct {
	ssh.Signer
	key ssh.PublicKey
}

func (b borrowed) PublicKey() ssh.PublicKey { return b.key }

// TestSSHVisas: a visa for SSH opens its service of its agent for its node, while it lasts.
func TestSSHVisas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	key, id := w.sshKey("ann", "eu")
	thief, second := w.joinAsProxy(), w.joinAsProxy()
	ask := func(node uuid.UUID, port uint16) (resp region.VisitResponse) {
		t.Helper()
		req := region.VisitRequest{Node: node, SSH: &region.SSH{Key: key.PublicKey().Marshal(), KeyID: id, Name: "dev", Port: port}}
		if err := w.asProxy(w.token).PostAsProxy(t.Context(), "ssh-visits", req, &resp); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	mine, theirs := ask(thief.Node.ID(), meshport.SSH), ask(second.Node.ID(), meshport.SSH)
	if err := thief.Client.Subscribe(t.Context(), w.agent); err != nil {
		t.Fatal(err)
	}
	// banner returns the beginning of what an agent says to a visa.
	banner := func(token string) string {
		t.Helper()
		conn, err := thief.Dial(w.agent, meshport.Visit, testwait.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(testwait.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "open "+token+"\n"); err != nil {
			return ""
		}
		said := make([]byte, len("SSH-2.0-"))
		n, err := io.ReadFull(conn, said)
		if isTimeout(err) {
			t.Fatalf("the agent neither answers nor refuses: %v", err)
		}
		return string(said[:n])
	}
	if got := banner(mine.Visa.Reveal()); got != "SSH-2.0-" {
		t.Fatalf("with a visa: %q", got)
	}
	own := coderdtest.Token(w.agent).Hash()
	for name, edit := range map[string]func(*visa.Visa){
		"the agent's calls":      func(v *visa.Visa) { v.Service = meshport.AgentRPC },
		"a port and SSH":         func(v *visa.Visa) { v.Port = 22 },
		"a terminal and SSH":     func(v *visa.Visa) { v.Terminal = true },
		"another agent's":        func(v *visa.Visa) { v.Agent = uuid.New() },
		"an expired one":         func(v *visa.Visa) { v.Expires = time.Now().Add(-visa.Leeway - time.Second).Unix() },
		"one for another's node": func(v *visa.Visa) { v.Node = second.Node.ID() },
	} {
		if got := banner(w.forge(mine.Visa, edit, own).Reveal()); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, token := range map[string]string{
		"another node's":  theirs.Visa.Reveal(),
		"a guess":         w.forge(mine.Visa, func(*visa.Visa) {}, []byte("guess")).Reveal(),
		"another service": strings.Replace(mine.Visa.Reveal(), ".", "x.", 1),
	} {
		if got := banner(token); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, port := range []uint16{meshport.Session, meshport.SSH, meshport.AgentRPC} {
		if conn, err := thief.Dial(w.agent, port, 2*time.Second); err == nil {
			conn.Close()
			t.Errorf("port %d is open to a region", port)
		}
	}
	var resp region.VisitResponse
	err := w.asProxy(w.token).PostAsProxy(t.Context(), "ssh-visits", region.VisitRequest{
		Node: second.Node.ID(), Visit: mine.Visit, SSH: &region.SSH{Key: key.PublicKey().Marshal(), KeyID: id},
	}, &resp)
	if fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("another node renews: %v", err)
	}
}
