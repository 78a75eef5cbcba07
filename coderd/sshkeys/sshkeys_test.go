package sshkeys_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/sshkeys"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/sshkey"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a key pair: the public key, as a value and as ssh-keygen writes it, and the private one.
type pair struct {
	ssh.PublicKey
	line    string
	private ed25519.PrivateKey
}

func newPair(t *testing.T) pair {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pair{key, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), private}
}

func add(t *testing.T, c *sdk.Client, req sdk.CreateUserSSHKeyRequest) sdk.UserSSHKey {
	t.Helper()
	made, err := c.CreateUserSSHKey(t.Context(), sdk.Me, req)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// signsIn checks whom a key signs in, in both ways to ask.
func signsIn(t *testing.T, s *coderdtest.Server, what string, key ssh.PublicKey, want sshkeys.Holder, text string) {
	t.Helper()
	for _, ask := range []struct {
		how string
		of  func() (sshkeys.Holder, error)
	}{
		{"find", func() (sshkeys.Holder, error) { return s.SSHKeys.Find(t.Context(), key) }},
		{"authenticate", func() (sshkeys.Holder, error) { return s.SSHKeys.Authenticate(t.Context(), key) }},
	} {
		got, err := ask.of()
		refused := fault.CodeOf(err) == fault.Unauthenticated && text != "" && strings.Contains(err.Error(), text)
		if got != want || (text == "") != (err == nil) || err != nil && !refused {
			t.Errorf("%s, %s: got %v, %v, want %v and %q", what, ask.how, got, err, want, text)
		}
	}
}

// lastUsed returns when a user's only key was used, and when the user was seen.
func lastUsed(t *testing.T, s *coderdtest.Server, user string) (used, seen *time.Time) {
	t.Helper()
	err := s.DB.Pool.QueryRow(t.Context(), `SELECT k.last_used_at, u.last_seen_at FROM user_ssh_keys k JOIN users u ON u.id = k.user_id WHERE u.id = $1`, s.User(user)).Scan(&used, &seen)
	if err != nil {
		t.Fatal(err)
	}
	return used, seen
}

// TestLifeOfAKey checks that a user adds a key, sees it and signs in with it until they remove it.
func TestLifeOfAKey(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, ctx, key := s.As("ann"), t.Context(), newPair(t)
	signsIn(t, s, "a key that was not added", key, sshkeys.Holder{}, "not registered")
	made := add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: key.line + " ann@laptop\n"})
	want := sdk.UserSSHKey{Name: "ann@laptop", Type: "ssh-ed25519", Fingerprint: ssh.FingerprintSHA256(key), PublicKey: key.line, Regions: sdk.List[string]{}}
	if diff := cmp.Diff(want, made, cmpopts.IgnoreFields(sdk.UserSSHKey{}, "ID", "CreatedAt")); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
	other := newPair(t)
	unnamed := add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: other.line + " <b>no name</b>"})
	if !strings.HasPrefix(unnamed.Name, "key-") {
		t.Errorf("a comment that is no name gave %q", unnamed.Name)
	}
	list, err := ann.UserSSHKeys(ctx, sdk.Me)
	if diff := cmp.Diff([]sdk.UserSSHKey{made, unnamed}, list); err != nil || diff != "" {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	signsIn(t, s, "her key", key, sshkeys.Holder{UserID: s.User("ann"), KeyID: made.ID}, "")

	// A certificate of the key is another credential, which its authority has not given here.
	cert := &ssh.Certificate{Key: key.PublicKey, CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity}
	signer, err := ssh.NewSignerFromKey(key.private)
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}
	signsIn(t, s, "a certificate of her key", cert, sshkeys.Holder{}, "not registered")

	if err := ann.DeleteUserSSHKey(ctx, sdk.Me, made.ID); err != nil {
		t.Fatal(err)
	}
	signsIn(t, s, "a removed key", key, sshkeys.Holder{}, "not registered")
	coderdtest.WantCode(t, "remove again", ann.DeleteUserSSHKey(ctx, sdk.Me, made.ID), fault.NotFound)
	add(t, s.As("bob"), sdk.CreateUserSSHKeyRequest{PublicKey: key.line}) // it is free again

	// The log and the audit log name the key, and do not repeat it.
	if strings.Contains(s.Logged(), strings.Fields(key.line)[1]) || !strings.Contains(s.Logged(), made.Fingerprint) {
		t.Error("the log repeats the key, or does not name its fingerprint")
	}
	rows, err := s.As("olga").AuditLogs(ctx, sdk.LogQuery{Q: "resource_type:user_ssh_key username:ann"})
	if err != nil || len(rows.AuditLogs) != 3 {
		t.Fatalf("audit log: %v, %v", rows, err)
	}
	for i, want := range []string{"ann deleted public SSH key ann@laptop", "ann created public SSH key " + unnamed.Name, "ann created public SSH key ann@laptop"} {
		row := rows.AuditLogs[i]
		if row.Description != want || row.Diff["fingerprint"] == (sdk.AuditDiffField{}) || !strings.Contains(string(row.AdditionalFields), `"ann"`) {
			t.Errorf("audit row %d: %+v, want %q", i, row, want)
		}
	}
}

// TestUseIsRecorded checks that a proved key is recorded as used, at most once a minute, and its user as seen, and that an offered key is not.
func TestUseIsRecorded(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ctx, key := t.Context(), newPair(t)
	made := add(t, s.As("ann"), sdk.CreateUserSSHKeyRequest{PublicKey: key.line, Name: "laptop"})
	s.Exec(`UPDATE users SET last_seen_at = now() - interval '90 days', status = 'dormant' WHERE id = $1`, s.User("ann"))
	_, before := lastUsed(t, s, "ann")
	authenticate := func() {
		t.Helper()
		if _, err := s.SSHKeys.Authenticate(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.SSHKeys.Find(ctx, key); err != nil {
		t.Fatal(err)
	}
	if used, seen := lastUsed(t, s, "ann"); used != nil || !seen.Equal(*before) {
		t.Errorf("an offer was recorded: %v, %v", used, seen)
	}
	authenticate()
	first, seen := lastUsed(t, s, "ann")
	if first == nil || !seen.After(*before) {
		t.Fatalf("a use was not recorded: %v, %v", first, seen)
	}
	var status string
	if err := s.DB.Pool.QueryRow(ctx, `SELECT status FROM users WHERE id = $1`, s.User("ann")).Scan(&status); err != nil || status != "active" {
		t.Errorf("a dormant user who signs in is %s, %v", status, err)
	}
	authenticate()
	if again, seenAgain := lastUsed(t, s, "ann"); !again.Equal(*first) || !seenAgain.Equal(*seen) {
		t.Errorf("a second use within a minute was recorded: %v, %v", again, seenAgain)
	}
	s.Exec(`UPDATE user_ssh_keys SET last_used_at = now() - interval '61 seconds' WHERE id = $1`, made.ID)
	authenticate()
	if later, _ := lastUsed(t, s, "ann"); !later.After(*first) {
		t.Errorf("a use after a minute was not recorded: %v", later)
	}
	list, err := s.As("ann").UserSSHKeys(ctx, sdk.Me)
	if err != nil || list[0].LastUsedAt == nil {
		t.Errorf("list: %+v, %v", list, err)
	}
}

// TestUselessKeys checks that the keys of suspended and deleted users, and expired ones, sign in no user at once, that such an attempt is not
// recorded as a use, and that what a key's user has open is looked at again.
func TestUselessKeys(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, olga, ctx, key := s.As("ann"), s.As("olga"), t.Context(), newPair(t)
	revoked := make(chan string, 100)
	defer s.PubSub.Subscribe("users_revoked", func(payload string) { revoked <- payload })()
	made := add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: key.line, Name: "laptop", Lifetime: time.Hour})
	if left := time.Until(*made.ExpiresAt); left > time.Hour || left < 30*time.Minute {
		t.Errorf("it expires in %s, want an hour", left)
	}
	holder := sshkeys.Holder{UserID: s.User("ann"), KeyID: made.ID}
	unused := func(what string) {
		t.Helper()
		if used, _ := lastUsed(t, s, "ann"); used != nil {
			t.Errorf("%s: recorded as used", what)
		}
	}
	if _, err := olga.SuspendUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	signsIn(t, s, "of a suspended user", key, sshkeys.Holder{}, "suspended")
	unused("of a suspended user")
	if _, err := olga.ActivateUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	s.Exec(`UPDATE user_ssh_keys SET expires_at = now() WHERE id = $1`, made.ID)
	signsIn(t, s, "an expired key", key, sshkeys.Holder{}, "expired")
	unused("an expired key")
	_, err := s.As("bob").CreateUserSSHKey(ctx, sdk.Me, sdk.CreateUserSSHKeyRequest{PublicKey: key.line})
	coderdtest.WantCode(t, "another user's expired key", err, fault.Conflict)

	// Its user can add it again, under the same name, with a new session.
	ann = s.With(s.Session("ann"))
	made = add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: key.line, Name: "laptop"})
	holder.KeyID = made.ID
	signsIn(t, s, "added again", key, holder, "")
	for len(revoked) > 0 {
		<-revoked
	}
	if err := ann.DeleteUserSSHKey(ctx, sdk.Me, made.ID); err != nil {
		t.Fatal(err)
	}
	if got := testwait.For(t, "the removal is announced", revoked); got != s.User("ann").String() {
		t.Errorf("the removal is announced for %q", got)
	}
	add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: key.line})
	if err := olga.DeleteUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	signsIn(t, s, "of a deleted user", key, sshkeys.Holder{}, "not registered")
	if left, err := s.DB.ListUserSSHKeys(ctx, holder.UserID); err != nil || len(left) != 0 {
		t.Errorf("left of a deleted user: %v, %v", left, err)
	}
	// A server of the release before deletes users and leaves their keys.
	add(t, s.As("cid"), sdk.CreateUserSSHKeyRequest{PublicKey: key.line})
	s.Exec(`UPDATE users SET deleted_at = now() WHERE id = $1`, s.User("cid"))
	signsIn(t, s, "of a user whom another release deleted", key, sshkeys.Holder{}, "not registered")
}

// TestOthersKeys checks who sees and removes the keys of others, and that no role and no limited token adds one.
func TestOthersKeys(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ctx := t.Context()
	made := add(t, s.As("ann"), sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Name: "laptop"})
	s.Exec(`UPDATE users SET roles = '{user-admin}' WHERE id = $1`, s.User("uma"))
	inside, err := s.Users.SessionFor(ctx, s.DB.Queries, s.User("ann"), s.WorkspaceRow("ann", "dev"))
	if err != nil {
		t.Fatal(err)
	}
	limited := func(scopes ...string) *sdk.Client {
		token, err := s.As("ann").CreateToken(ctx, sdk.Me, sdk.CreateTokenRequest{Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return s.With(secret.Token(token.Key))
	}
	for name, a := range map[string]struct {
		client             *sdk.Client
		list, add, removes fault.Code
	}{
		"a member":                {s.As("bob"), fault.NotFound, fault.NotFound, fault.NotFound},
		"a template admin":        {s.As("tom"), fault.NotFound, fault.NotFound, fault.NotFound},
		"a visitor":               {s.With(""), fault.Unauthenticated, fault.Unauthenticated, fault.Unauthenticated},
		"an owner":                {s.As("olga"), "", fault.Forbidden, ""},
		"a user admin":            {s.As("uma"), "", fault.Forbidden, ""},
		"a workspace's token":     {s.With(inside), "", fault.Forbidden, fault.Forbidden},
		"a token that reads":      {limited("user_ssh_key:read"), "", fault.Forbidden, fault.Forbidden},
		"a token for workspaces":  {limited("workspace:*"), fault.Forbidden, fault.Forbidden, fault.Forbidden},
		"a token for keys":        {limited("user_ssh_key:*"), "", fault.Forbidden, ""},
		"a token for all scopes":  {limited("all"), "", "", ""},
		"their own session":       {s.As("ann"), "", "", ""},
		"a token that adds to it": {limited("user_ssh_key:create", "api_key:*", "workspace:*"), fault.Forbidden, fault.Forbidden, fault.Forbidden},
	} {
		for _, ann := range []string{"ann", s.User("ann").String()} {
			_, err := a.client.UserSSHKeys(ctx, ann)
			coderdtest.WantCode(t, name+" lists", err, a.list)
			planted, err := a.client.CreateUserSSHKey(ctx, ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line})
			coderdtest.WantCode(t, name+" adds", err, a.add)
			if err == nil {
				coderdtest.WantCode(t, name+" removes what they added", a.client.DeleteUserSSHKey(ctx, ann, planted.ID), "")
			}
			victim := made.ID
			if a.removes == "" {
				victim = add(t, s.As("ann"), sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line}).ID
			}
			coderdtest.WantCode(t, name+" removes", a.client.DeleteUserSSHKey(ctx, ann, victim), a.removes)
		}
	}
	// Under another user's path, a key does not exist; and an admin does not reach accounts with more powers.
	coderdtest.WantCode(t, "bob removes ann's as his", s.As("bob").DeleteUserSSHKey(ctx, sdk.Me, made.ID), fault.NotFound)
	olgas := add(t, s.As("olga"), sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line})
	coderdtest.WantCode(t, "a user admin removes an owner's", s.As("uma").DeleteUserSSHKey(ctx, "olga", olgas.ID), fault.Forbidden)
	list, err := s.As("ann").UserSSHKeys(ctx, sdk.Me)
	if err != nil || len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("after the attempts: %+v, %v", list, err)
	}
}

// TestLongestLifetime checks that no key outlives the operator's longest lifetime, also one that was added before it was set, and that the server
// waits for the end of such a key.
func TestLongestLifetime(t *testing.T) {
	t.Parallel()
	const longest = 90 * 24 * time.Hour
	free := coderdtest.New(t)
	ctx, old, unlimited := t.Context(), newPair(t), newPair(t)
	before := add(t, free.As("ann"), sdk.CreateUserSSHKeyRequest{PublicKey: old.line, Name: "old"})
	young := add(t, free.As("ann"), sdk.CreateUserSSHKeyRequest{PublicKey: unlimited.line, Name: "young"})
	free.Exec(`UPDATE user_ssh_keys SET created_at = now() - interval '91 days' WHERE id = $1`, before.ID)
	signsIn(t, free, "an old key without a limit", old, sshkeys.Holder{UserID: free.User("ann"), KeyID: before.ID}, "")
	if gateway, err := free.As("ann").SSHGateway(ctx); err != nil || gateway.MaxKeyLifetime != 0 {
		t.Errorf("without a limit, users are told %v, %v", gateway, err)
	}

	s := coderdtest.New(t, func(o *coderd.Options) { o.DB, o.States, o.MaxSSHKeyLifetime = free.DB, free.States, longest })
	ann := s.As("ann")
	if gateway, err := ann.SSHGateway(ctx); err != nil || gateway.MaxKeyLifetime != longest {
		t.Errorf("users are told %v, %v", gateway, err)
	}
	signsIn(t, s, "an old key", old, sshkeys.Holder{}, "expired")
	signsIn(t, s, "a young key", unlimited, sshkeys.Holder{UserID: s.User("ann"), KeyID: young.ID}, "")
	for name, lifetime := range map[string]time.Duration{"longest": 0, "chosen": time.Hour} {
		made := add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Name: name, Lifetime: lifetime})
		want := lifetime
		if want == 0 {
			want = longest
		}
		if got := made.ExpiresAt.Sub(made.CreatedAt); got != want {
			t.Errorf("%s: expires after %s, want %s", name, got, want)
		}
	}
	_, err := ann.CreateUserSSHKey(ctx, sdk.Me, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Lifetime: longest + time.Second})
	if coderdtest.WantCode(t, "a longer lifetime", err, fault.Invalid); !strings.Contains(fmt.Sprint(fault.As(err).Fields), "between 1m and 90 days") {
		t.Errorf("a longer lifetime: %v", fault.As(err).Fields)
	}
	list, err := ann.UserSSHKeys(ctx, sdk.Me)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range list {
		if k.ExpiresAt == nil || k.ExpiresAt.After(k.CreatedAt.Add(longest)) {
			t.Errorf("%s is listed as expiring at %v", k.Name, k.ExpiresAt)
		}
	}
	// Its user adds the old key again, in its place.
	again := add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: old.line, Name: "old"})
	signsIn(t, s, "added again", old, sshkeys.Holder{UserID: s.User("ann"), KeyID: again.ID}, "")

	end := young.CreatedAt.Add(longest)
	next, err := s.DB.NextKeyExpiry(ctx, dbsqlc.NextKeyExpiryParams{After: end.Add(-time.Millisecond), MaxSeconds: longest.Seconds()})
	if err != nil || !next.Equal(end) {
		t.Errorf("the next key expires at %s, %v, want %s", next, err, end)
	}
	users, err := s.DB.ListUsersWithExpiredKeys(ctx, dbsqlc.ListUsersWithExpiredKeysParams{After: end.Add(-time.Millisecond), Until: end, MaxSeconds: longest.Seconds()})
	if diff := cmp.Diff([]uuid.UUID{s.User("ann")}, users); err != nil || diff != "" {
		t.Errorf("users whose keys have expired: %v (-want +got):\n%s", err, diff)
	}
}

// TestServiceAccounts checks that a service account, which acts with tokens, adds keys with them as other users do.
func TestServiceAccounts(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ctx, key := t.Context(), newPair(t)
	robot, err := s.As("olga").CreateUser(ctx, sdk.CreateUserRequest{Username: "robot", ServiceAccount: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.As("olga").CreateUserSSHKey(ctx, "robot", sdk.CreateUserSSHKeyRequest{PublicKey: key.line})
	coderdtest.WantCode(t, "an owner adds a service account's key", err, fault.Forbidden)
	token, err := s.As("olga").CreateToken(ctx, "robot", sdk.CreateTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	made := add(t, s.With(secret.Token(token.Key)), sdk.CreateUserSSHKeyRequest{PublicKey: key.line})
	signsIn(t, s, "a service account", key, sshkeys.Holder{UserID: robot.ID, KeyID: made.ID}, "")
}

// TestRefusedKeys checks that bad input is refused and leaves nothing: neither a row, nor in the log, the audit log or the answer.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, bob, ctx, key := s.As("ann"), s.As("bob"), t.Context(), newPair(t)
	add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: key.line, Name: "laptop"})
	block, err := ssh.MarshalPrivateKey(newPair(t).private, "")
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(block))
	for what, tt := range map[string]struct {
		client *sdk.Client
		req    sdk.CreateUserSSHKeyRequest
		field  string
		want   fault.Code
	}{
		"a private key":            {ann, sdk.CreateUserSSHKeyRequest{PublicKey: private}, "public_key", fault.Invalid},
		"a private key as a name":  {ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Name: private}, "name", fault.Invalid},
		"no key":                   {ann, sdk.CreateUserSSHKeyRequest{Name: "x"}, "public_key", fault.Invalid},
		"options":                  {ann, sdk.CreateUserSSHKeyRequest{PublicKey: "no-pty " + newPair(t).line}, "public_key", fault.Invalid},
		"a name with a line break": {ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Name: "a\nb"}, "name", fault.Invalid},
		"a long name":              {ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Name: strings.Repeat("x", 65)}, "name", fault.Invalid},
		"a short lifetime":         {ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Lifetime: time.Second}, "lifetime", fault.Invalid},
		"a negative lifetime":      {ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Lifetime: -time.Hour}, "lifetime", fault.Invalid},
		"an endless lifetime":      {ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Lifetime: 1 << 62}, "lifetime", fault.Invalid},
		"a name that is taken":     {ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Name: "laptop"}, "name", fault.Conflict},
		"her key again":            {ann, sdk.CreateUserSSHKeyRequest{PublicKey: key.line, Name: "again"}, "public_key", fault.Conflict},
		"another user's key":       {bob, sdk.CreateUserSSHKeyRequest{PublicKey: key.line}, "public_key", fault.Conflict},
	} {
		_, err := tt.client.CreateUserSSHKey(ctx, sdk.Me, tt.req)
		f := fault.As(err)
		if f == nil || f.Code != tt.want || len(f.Fields) != 1 || f.Fields[0].Field != tt.field {
			t.Errorf("%s: %#v", what, err)
			continue
		}
		answer, _ := json.Marshal(f)
		for line := range strings.SplitSeq(private, "\n") {
			if line != "" && strings.Contains(string(answer), line) {
				t.Errorf("%s: the answer repeats %q", what, line)
			}
		}
		if tt.client == bob && strings.Contains(string(answer), "ann") || strings.Contains(string(answer), s.User("ann").String()) {
			t.Errorf("%s: the answer says whose key it is: %s", what, answer)
		}
	}
	signsIn(t, s, "after the attempts", key, sshkeys.Holder{UserID: s.User("ann"), KeyID: keyOf(t, ann)}, "")
	if list, err := bob.UserSSHKeys(ctx, sdk.Me); err != nil || len(list) != 0 {
		t.Errorf("bob has %v, %v", list, err)
	}
	var stored string
	if err := s.DB.Pool.QueryRow(ctx, `SELECT concat((SELECT string_agg(a::text, ' ') FROM audit_logs a), (SELECT string_agg(k::text, ' ') FROM user_ssh_keys k))`).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	body := strings.Split(private, "\n")[1]
	if strings.Contains(s.Logged(), body) || strings.Contains(stored, body) || strings.Contains(s.Logged()+stored, "PRIVATE KEY") {
		t.Error("the private key was logged or stored")
	}
}

// keyOf returns the id of a user's only key.
func keyOf(t *testing.T, c *sdk.Client) uuid.UUID {
	t.Helper()
	list, err := c.UserSSHKeys(t.Context(), sdk.Me)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0].ID
}

// TestLimit checks that a user has a bounded number of keys, also if several are added at once, and that one key that several users add at
// once belongs to one of them.
func TestLimit(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, ctx := s.As("ann"), t.Context()
	for i := range sshkey.MaxKeys - 2 {
		add(t, ann, sdk.CreateUserSSHKeyRequest{PublicKey: newPair(t).line, Name: fmt.Sprintf("key %d", i)})
	}
	results := make(chan error, 6)
	var adding sync.WaitGroup
	for range cap(results) {
		line := newPair(t).line
		adding.Go(func() {
			_, err := ann.CreateUserSSHKey(ctx, sdk.Me, sdk.CreateUserSSHKeyRequest{PublicKey: line})
			results <- err
		})
	}
	adding.Wait()
	added := 0
	for range cap(results) {
		if err := <-results; err == nil {
			added++
		} else if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "coder ssh-key remove") {
			t.Errorf("one too many: %v", err)
		}
	}
	if added != 2 {
		t.Errorf("%d of 6 were added, want 2", added)
	}
	key := newPair(t)
	won := make(chan string, 4)
	for _, name := range []string{"bob", "cid", "dan", "eve"} {
		client := s.As(name)
		adding.Go(func() {
			if _, err := client.CreateUserSSHKey(ctx, sdk.Me, sdk.CreateUserSSHKeyRequest{PublicKey: key.line}); err == nil {
				won <- name
			}
		})
	}
	adding.Wait()
	if len(won) != 1 {
		t.Fatalf("%d users have the key", len(won))
	}
	winner := <-won
	signsIn(t, s, "the key", key, sshkeys.Holder{UserID: s.User(winner), KeyID: keyOf(t, s.As(winner))}, "")
}
