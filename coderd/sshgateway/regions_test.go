package sshgateway_test

import (
	"crypto/ed25519"
	"net/http"
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

// proxy is a client with the token of a new region proxy, which asks what it likes.
func (w *world) proxy(t *testing.T, name string) *sdk.Client {
	t.Helper()
	made, err := w.As("olga").CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return w.asProxy(made.Token)
}

func (w *world) asProxy(token string) *sdk.Client {
	return sdk.New(w.URL, "", sdk.Options{Header: http.Header{sdk.ProxyTokenHeader: {token}}})
}

// shows asks as a proxy whether a key may sign in, of which it says that a client has proven to have it.
func shows(t *testing.T, proxy *sdk.Client, key ssh.PublicKey) (uuid.UUID, error) {
	t.Helper()
	var resp region.SSHKeyResponse
	err := proxy.PostAsProxy(t.Context(), "ssh-keys", region.SSHKeyRequest{Key: key.Marshal(), Proven: true}, &resp)
	return resp.ID, err
}

// visit is a question about a session.
type visit struct {
	node uuid.UUID
	last region.VisitResponse
}

func (v visit) ask(t *testing.T, proxy *sdk.Client, asked region.SSH) (resp region.VisitResponse, err error) {
	t.Helper()
	req := region.VisitRequest{SSH: &asked, Node: v.node, Visit: v.last.Visit}
	return resp, proxy.PostAsProxy(t.Context(), "ssh-visits", req, &resp)
}

// allow sets at which regions a key of a user may sign in.
func (w *world) allow(t *testing.T, user string, key uuid.UUID, regions ...string) {
	t.Helper()
	if _, err := w.As(user).UpdateUserSSHKey(t.Context(), sdk.Me, key, sdk.UpdateUserSSHKeyRequest{Regions: regions}); err != nil {
		t.Fatal(err)
	}
}

// TestKeysAtRegions: a region is believed about the keys that their users have allowed there, and gets for them what the users may reach. Nothing else
// that a region says gets it a name, a visa or a renewal.
func TestKeysAtRegions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eu, us := w.proxy(t, "eu"), w.proxy(t, "us")
	anns, bobs := newKey(t), newKey(t)
	made, bob := w.register(t, "ann", anns, "laptop"), w.register(t, "bob", bobs, "laptop")
	refused := func(what string, err error, want fault.Code) {
		t.Helper()
		if fault.CodeOf(err) != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	known := func(key ssh.PublicKey) error {
		return eu.PostAsProxy(t.Context(), "ssh-keys", region.SSHKeyRequest{Key: key.Marshal()}, &region.SSHKeyResponse{})
	}
	if err := known(anns.PublicKey()); err != nil {
		t.Errorf("a registered key, so that its client can be told what to do: %v", err)
	}
	refused("a key that is offered, and not registered", known(newKey(t).PublicKey()), fault.Unauthenticated)
	_, err := shows(t, eu, anns.PublicKey())
	refused("a key that was not allowed here", err, fault.Forbidden)
	if f := fault.As(err); f == nil || !strings.Contains(f.Detail, "coder ssh-key regions KEY eu") {
		t.Errorf("Ann is told %+v", err)
	}
	begin := region.SSH{Key: anns.PublicKey().Marshal(), KeyID: made.ID, Name: "dev", Port: meshport.Session}
	first := visit{node: uuid.New()}
	_, err = first.ask(t, eu, begin)
	refused("a visit with it", err, fault.Forbidden)

	w.allow(t, "ann", made.ID, "eu")
	w.allow(t, "bob", bob.ID, "EU")
	if id, err := shows(t, eu, anns.PublicKey()); err != nil || id != made.ID {
		t.Fatalf("an allowed key: %s, %v", id, err)
	}
	_, err = shows(t, us, anns.PublicKey())
	refused("a key of another region", err, fault.Forbidden)
	_, err = shows(t, w.asProxy("cmwp_"+strings.Repeat("x", 43)), anns.PublicKey())
	refused("no region", err, fault.Unauthenticated)
	_, err = shows(t, eu, certified(t, w.As("ann")).PublicKey())
	refused("a certificate", err, fault.Unauthenticated)

	if first.last, err = first.ask(t, eu, begin); err != nil || first.last.Visa == "" || first.last.Visit == "" {
		t.Fatalf("a visit: %+v, %v", first.last, err)
	}
	agent := first.last.Agent
	got, err := visa.Open(coderdtest.Token(agent).Hash(), first.last.Visa, time.Now())
	want := visa.Visa{Visit: first.last.ID, Agent: agent, Node: first.node, User: w.User("ann"), Service: meshport.Session, Expires: got.Expires}
	if err != nil || got != want || time.Until(time.Unix(got.Expires, 0)) > visa.Lifetime {
		t.Errorf("the visa is %+v, %v, want %+v", got, err, want)
	}
	for name, change := range map[string]func(*region.SSH){
		"another user's workspace": func(s *region.SSH) { s.Key, s.KeyID, s.Name = bobs.PublicKey().Marshal(), bob.ID, "ann/dev" },
		"no workspace":             func(s *region.SSH) { s.Key, s.KeyID, s.Name = bobs.PublicKey().Marshal(), bob.ID, "ann/nothing" },
		"one's own that is none":   func(s *region.SSH) { s.Name = "nothing" },
	} {
		asked := begin
		change(&asked)
		_, err := visit{node: uuid.New()}.ask(t, eu, asked)
		refused(name, err, fault.NotFound)
		if f := fault.As(err); f != nil && strings.Contains(f.Message+f.Detail, "dev") {
			t.Errorf("%s: told %+v", name, f)
		}
	}
	for name, x := range map[string]struct {
		change func(*region.SSH)
		want   fault.Code
	}{
		"another port":        {func(s *region.SSH) { s.Port = meshport.AgentRPC }, fault.Invalid},
		"no port":             {func(s *region.SSH) { s.Port = 0 }, fault.Invalid},
		"the id of no key":    {func(s *region.SSH) { s.KeyID = uuid.New() }, fault.Unauthenticated},
		"another user's id":   {func(s *region.SSH) { s.KeyID = bob.ID }, fault.Unauthenticated},
		"a key that is none":  {func(s *region.SSH) { s.Key = []byte("key") }, fault.Unauthenticated},
		"an unregistered key": {func(s *region.SSH) { s.Key = newKey(t).PublicKey().Marshal() }, fault.Unauthenticated},
	} {
		asked := begin
		x.change(&asked)
		_, err := visit{node: uuid.New()}.ask(t, eu, asked)
		refused(name, err, x.want)
	}
	_, err = visit{}.ask(t, eu, begin)
	refused("no node", err, fault.Invalid)

	renewal := region.SSH{Key: begin.Key, KeyID: begin.KeyID}
	if again, err := first.ask(t, eu, renewal); err != nil || again.ID != first.last.ID || again.Agent != agent || again.Visa == "" {
		t.Errorf("a renewal: %+v, %v", again, err)
	}
	_, err = first.ask(t, us, renewal)
	refused("another region renews a visit", err, fault.Forbidden)
	_, err = visit{uuid.New(), first.last}.ask(t, eu, renewal)
	refused("another node renews a visit", err, fault.Forbidden)
	_, err = first.ask(t, eu, region.SSH{Key: bobs.PublicKey().Marshal(), KeyID: bob.ID})
	refused("another key renews a visit", err, fault.Forbidden)
	forged := first
	forged.last.Visit = first.last.Visit[:len(first.last.Visit)-4] + "AAAA"
	_, err = forged.ask(t, eu, renewal)
	refused("a forged renewal", err, fault.Forbidden)

	testwait.Until(t, "the visit is in the log", func() error {
		log, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "type:ssh", Limit: 10})
		if err != nil {
			return err
		}
		return testwait.Unless(len(log.ConnectionLogs) == 1 && log.ConnectionLogs[0].Region == "eu" && log.ConnectionLogs[0].Username == "ann" &&
			log.ConnectionLogs[0].ID == first.last.ID, "it has %+v", log.ConnectionLogs)
	})

	w.allow(t, "ann", made.ID)
	_, err = first.ask(t, eu, renewal)
	refused("a renewal with a key that is allowed no more", err, fault.Forbidden)
	w.allow(t, "ann", made.ID, "eu", "us")
	w.Exec("UPDATE user_ssh_keys SET expires_at = now() WHERE id = $1", made.ID)
	_, err = first.ask(t, eu, renewal)
	refused("a renewal with a key that has expired", err, fault.Unauthenticated)
	if err := w.As("ann").DeleteUserSSHKey(t.Context(), sdk.Me, made.ID); err != nil {
		t.Fatal(err)
	}
	_, err = first.ask(t, eu, begin)
	refused("a removed key", err, fault.Unauthenticated)
	again := w.register(t, "ann", anns, "laptop")
	w.allow(t, "ann", again.ID, "eu")
	_, err = first.ask(t, eu, renewal)
	refused("a renewal with a key that was added again", err, fault.Unauthenticated)
	if _, err := w.As("olga").SuspendUser(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	_, err = shows(t, eu, bobs.PublicKey())
	refused("a suspended user's key", err, fault.Unauthenticated)
}

// TestStartsAtRegions: a region starts the stopped workspace of a key's user, and asks about no start but its own.
func TestStartsAtRegions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eu, us := w.proxy(t, "eu"), w.proxy(t, "us")
	key, bobs := newKey(t), newKey(t)
	made, bob := w.register(t, "ann", key, "laptop"), w.register(t, "bob", bobs, "laptop")
	w.allow(t, "ann", made.ID, "eu", "us")
	w.allow(t, "bob", bob.ID, "eu")
	cold, _ := w.Running("ann", "cold", w.template)
	w.Build("ann", cold.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built(""))
	testwait.Until(t, "it is stopped", w.Is(cold.ID, sdk.WorkspaceStopped))
	ask := func(proxy *sdk.Client, req region.SSHStartRequest) (resp region.SSHStartResponse, err error) {
		return resp, proxy.PostAsProxy(t.Context(), "ssh-starts", req, &resp)
	}
	if _, err := ask(eu, region.SSHStartRequest{Key: bobs.PublicKey().Marshal(), KeyID: bob.ID, Name: "ann/cold"}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("Bob starts Ann's workspace: %v", err)
	}
	start := region.SSHStartRequest{Key: key.PublicKey().Marshal(), KeyID: made.ID, Name: "cold"}
	begun, err := ask(eu, start)
	if err != nil || begun.Start == "" || begun.Ended {
		t.Fatalf("%+v, %v", begun, err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("state", coderdtest.Resource(uuid.New())))
	start.Name, start.Start = "", begun.Start
	testwait.Until(t, "the start ends", func() error {
		resp, err := ask(eu, start)
		if err != nil {
			return err
		}
		return testwait.Unless(resp.Ended, "it goes on")
	})
	if _, err := ask(us, start); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("another region asks about the start: %v", err)
	}
	if _, err := ask(eu, region.SSHStartRequest{Key: bobs.PublicKey().Marshal(), KeyID: bob.ID, Start: begun.Start}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("another key's start: %v", err)
	}
}

// TestHostKeysOfRegions: each region gets its own host key, and no other.
func TestHostKeysOfRegions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gateway, err := w.As("ann").SSHGateway(t.Context())
	if err != nil || len(gateway.Regions) != 0 {
		t.Fatalf("%+v, %v", gateway, err)
	}
	seen := map[string]bool{gateway.Fingerprint: true}
	eu, us := w.proxy(t, "eu"), w.proxy(t, "us")
	for i, proxy := range []*sdk.Client{eu, us, eu} {
		var resp region.SSHHostKeyResponse
		if err := proxy.PostAsProxy(t.Context(), "ssh-host-key", struct{}{}, &resp); err != nil || len(resp.Seed) != ed25519.SeedSize {
			t.Fatalf("%d bytes, %v", len(resp.Seed), err)
		}
		key, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(resp.Seed).Public())
		if err != nil {
			t.Fatal(err)
		}
		fingerprint := ssh.FingerprintSHA256(key)
		if seen[fingerprint] != (i == 2) {
			t.Errorf("host key %d: seen is %v", i, seen[fingerprint])
		}
		seen[fingerprint] = true
	}
	if err := w.As("olga").PostAsProxy(t.Context(), "ssh-host-key", struct{}{}, &region.SSHHostKeyResponse{}); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("an owner of the deployment gets a host key: %v", err)
	}
}
