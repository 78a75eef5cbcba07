package sshgateway_test

import (
	"crypto/ed25519"
	"slices"
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

// shows asks as a proxy whether a key may sign in, of which it says that a client has proven to have it.
func shows(t *testing.T, proxy coderdtest.Region, key ssh.PublicKey) (uuid.UUID, error) {
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

func (v visit) ask(t *testing.T, proxy coderdtest.Region, asked region.SSH) (resp region.VisitResponse, err error) {
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

// regional is a world with two regions, and users with a key each.
type regional struct {
	*world
	eu, us     coderdtest.Region
	anns, bobs ssh.Signer
	ann, bob   sdk.UserSSHKey
	begin      region.SSH // Ann's question for a visit to dev
	first      visit      // Ann's, once she has it
}

// TestKeysAtRegions: a region is believed about the keys that their users have allowed there, and gets for them what the users may reach. Nothing else
// that a region says gets it a name, a visa or a renewal.
func TestKeysAtRegions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &regional{world: w, eu: w.Region(t, "eu"), us: w.Region(t, "us"), anns: newKey(t), bobs: newKey(t), first: visit{node: uuid.New()}}
	r.ann, r.bob = w.register(t, "ann", r.anns, "laptop"), w.register(t, "bob", r.bobs, "laptop")
	r.begin = region.SSH{Key: r.anns.PublicKey().Marshal(), KeyID: r.ann.ID, Name: "dev", Port: meshport.Session}
	r.allowKeys(t)
	r.takeVisit(t)
	r.refuseVisits(t)
	renewal := region.SSH{Key: r.begin.Key, KeyID: r.begin.KeyID}
	r.renewVisit(t, renewal)
	for user, search := range map[string]string{"ann": "type:ssh status:ongoing", "bob": "type:ssh status:refused"} {
		testwait.Until(t, "what "+user+" did is in the log", func() error {
			log, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: search, Limit: 10})
			if err != nil {
				return err
			}
			logs := log.ConnectionLogs
			others := slices.ContainsFunc(logs, func(l sdk.ConnectionLog) bool { return l.Region != "eu" || l.Username != user })
			// Each minute has a row of its own for what was refused.
			ok := !others && (user == "bob" && len(logs) > 0 || len(logs) == 1 && logs[0].ID == r.first.last.ID)
			return testwait.Unless(ok, "it has %+v", logs)
		})
	}
	r.revokeKeys(t, renewal)
}

// allowKeys asks about keys before and after their users have allowed them at eu.
func (r *regional) allowKeys(t *testing.T) {
	t.Helper()
	known := func(key ssh.PublicKey) error {
		return r.eu.PostAsProxy(t.Context(), "ssh-keys", region.SSHKeyRequest{Key: key.Marshal()}, &region.SSHKeyResponse{})
	}
	if err := known(r.anns.PublicKey()); err != nil {
		t.Errorf("a registered key, so that its client can be told what to do: %v", err)
	}
	coderdtest.WantCode(t, "a key that is offered, and not registered", known(newKey(t).PublicKey()), fault.Unauthenticated)
	_, err := shows(t, r.eu, r.anns.PublicKey())
	coderdtest.WantCode(t, "a key that was not allowed here", err, fault.Forbidden)
	if f := fault.As(err); f == nil || !strings.Contains(f.Detail, "coder ssh-key regions KEY eu") {
		t.Errorf("Ann is told %+v", err)
	}
	_, err = r.first.ask(t, r.eu, r.begin)
	coderdtest.WantCode(t, "a visit with it", err, fault.Forbidden)

	r.allow(t, "ann", r.ann.ID, "eu")
	r.allow(t, "bob", r.bob.ID, "EU")
	if id, err := shows(t, r.eu, r.anns.PublicKey()); err != nil || id != r.ann.ID {
		t.Fatalf("an allowed key: %s, %v", id, err)
	}
	_, err = shows(t, r.us, r.anns.PublicKey())
	coderdtest.WantCode(t, "a key of another region", err, fault.Forbidden)
	_, err = shows(t, r.NoRegion(), r.anns.PublicKey())
	coderdtest.WantCode(t, "no region", err, fault.Unauthenticated)
	_, err = shows(t, r.eu, certified(t, r.As("ann")).PublicKey())
	coderdtest.WantCode(t, "a certificate", err, fault.Unauthenticated)
}

// takeVisit gets Ann's visit, and checks its visa.
func (r *regional) takeVisit(t *testing.T) {
	t.Helper()
	last, err := r.first.ask(t, r.eu, r.begin)
	if err != nil || last.Visa == "" || last.Visit == "" {
		t.Fatalf("a visit: %+v, %v", last, err)
	}
	r.first.last = last
	got, err := visa.Open(coderdtest.Token(last.Agent).Hash(), last.Visa, time.Now())
	want := visa.Visa{Visit: last.ID, Agent: last.Agent, Node: r.first.node, User: r.User("ann"), Service: meshport.Session, Expires: got.Expires}
	if err != nil || got != want || time.Until(time.Unix(got.Expires, 0)) > visa.Lifetime {
		t.Errorf("the visa is %+v, %v, want %+v", got, err, want)
	}
}

// refuseVisits asks for visits that no one may have. Who may not know of a workspace is told the same as of one that does not exist.
func (r *regional) refuseVisits(t *testing.T) {
	t.Helper()
	bobs := r.bobs.PublicKey().Marshal()
	for name, x := range map[string]struct {
		change func(*region.SSH)
		want   fault.Code
	}{
		"another user's workspace": {func(s *region.SSH) { s.Key, s.KeyID, s.Name = bobs, r.bob.ID, "ann/dev" }, fault.NotFound},
		"no workspace":             {func(s *region.SSH) { s.Key, s.KeyID, s.Name = bobs, r.bob.ID, "ann/nothing" }, fault.NotFound},
		"one's own that is none":   {func(s *region.SSH) { s.Name = "nothing" }, fault.NotFound},
		"another port":             {func(s *region.SSH) { s.Port = meshport.AgentRPC }, fault.Invalid},
		"no port":                  {func(s *region.SSH) { s.Port = 0 }, fault.Invalid},
		"the id of no key":         {func(s *region.SSH) { s.KeyID = uuid.New() }, fault.Unauthenticated},
		"another user's id":        {func(s *region.SSH) { s.KeyID = r.bob.ID }, fault.Unauthenticated},
		"a key that is none":       {func(s *region.SSH) { s.Key = []byte("key") }, fault.Unauthenticated},
		"an unregistered key":      {func(s *region.SSH) { s.Key = newKey(t).PublicKey().Marshal() }, fault.Unauthenticated},
	} {
		asked := r.begin
		x.change(&asked)
		_, err := visit{node: uuid.New()}.ask(t, r.eu, asked)
		coderdtest.WantCode(t, name, err, x.want)
		if f := fault.As(err); x.want == fault.NotFound && f != nil && strings.Contains(f.Message+f.Detail, "dev") {
			t.Errorf("%s: told %+v", name, f)
		}
	}
	_, err := visit{}.ask(t, r.eu, r.begin)
	coderdtest.WantCode(t, "no node", err, fault.Invalid)
}

// renewVisit renews Ann's visit, which only her region, node and key may.
func (r *regional) renewVisit(t *testing.T, renewal region.SSH) {
	t.Helper()
	first := r.first
	if again, err := first.ask(t, r.eu, renewal); err != nil || again.ID != first.last.ID || again.Agent != first.last.Agent || again.Visa == "" {
		t.Errorf("a renewal: %+v, %v", again, err)
	}
	_, err := first.ask(t, r.us, renewal)
	coderdtest.WantCode(t, "another region renews a visit", err, fault.Forbidden)
	_, err = visit{uuid.New(), first.last}.ask(t, r.eu, renewal)
	coderdtest.WantCode(t, "another node renews a visit", err, fault.Forbidden)
	_, err = first.ask(t, r.eu, region.SSH{Key: r.bobs.PublicKey().Marshal(), KeyID: r.bob.ID})
	coderdtest.WantCode(t, "another key renews a visit", err, fault.Forbidden)
	forged := first
	forged.last.Visit = first.last.Visit[:len(first.last.Visit)-4] + "AAAA"
	_, err = forged.ask(t, r.eu, renewal)
	coderdtest.WantCode(t, "a forged renewal", err, fault.Forbidden)
}

// revokeKeys takes away, one after the other, what keys need to sign in.
func (r *regional) revokeKeys(t *testing.T, renewal region.SSH) {
	t.Helper()
	r.allow(t, "ann", r.ann.ID)
	_, err := r.first.ask(t, r.eu, renewal)
	coderdtest.WantCode(t, "a renewal with a key that is allowed no more", err, fault.Forbidden)
	r.allow(t, "ann", r.ann.ID, "eu", "us")
	r.Exec("UPDATE user_ssh_keys SET expires_at = now() WHERE id = $1", r.ann.ID)
	_, err = r.first.ask(t, r.eu, renewal)
	coderdtest.WantCode(t, "a renewal with a key that has expired", err, fault.Unauthenticated)
	if err := r.As("ann").DeleteUserSSHKey(t.Context(), sdk.Me, r.ann.ID); err != nil {
		t.Fatal(err)
	}
	_, err = r.first.ask(t, r.eu, r.begin)
	coderdtest.WantCode(t, "a removed key", err, fault.Unauthenticated)
	again := r.register(t, "ann", r.anns, "laptop")
	r.allow(t, "ann", again.ID, "eu")
	_, err = r.first.ask(t, r.eu, renewal)
	coderdtest.WantCode(t, "a renewal with a key that was added again", err, fault.Unauthenticated)
	if _, err := r.As("olga").SuspendUser(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	_, err = shows(t, r.eu, r.bobs.PublicKey())
	coderdtest.WantCode(t, "a suspended user's key", err, fault.Unauthenticated)
}

// TestStartsAtRegions: a region starts the stopped workspace of a key's user, and asks about no start but its own.
func TestStartsAtRegions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eu, us := w.Region(t, "eu"), w.Region(t, "us")
	key, bobs := newKey(t), newKey(t)
	made, bob := w.register(t, "ann", key, "laptop"), w.register(t, "bob", bobs, "laptop")
	w.allow(t, "ann", made.ID, "eu", "us")
	w.allow(t, "bob", bob.ID, "eu")
	cold, _ := w.Running("ann", "cold", w.template)
	w.Build("ann", cold.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built(""))
	testwait.Until(t, "it is stopped", w.Is(cold.ID, sdk.WorkspaceStopped))
	ask := func(proxy coderdtest.Region, req region.SSHStartRequest) (resp region.SSHStartResponse, err error) {
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
	eu, us := w.Region(t, "eu"), w.Region(t, "us")
	for i, proxy := range []coderdtest.Region{eu, us, eu} {
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
