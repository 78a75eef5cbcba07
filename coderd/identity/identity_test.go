package identity_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/identity"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const vault = "https://vault.example.com"

// world is a server with the template "docker", whose workspaces get tokens for vault.
type world struct {
	*coderdtest.Server
	template sdk.Template
	mu       sync.Mutex
	agent    uuid.UUID // whose RPCs agents answers
	agents   agentpbconnect.AgentServiceClient
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: coderdtest.New(t)}
	w.template = w.Template("docker", nil)
	w.allow(vault)
	_, handler := w.Agents.RPCHandler(func(netip.Addr) (uuid.UUID, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.agent, true
	})
	client := coderdtest.RPCClient(t, new(net.Dialer).DialContext)
	w.agents = agentpbconnect.NewAgentServiceClient(client, coderdtest.ServeRPC(t, handler))
	return w
}

// allow sets the audiences of the template's workspaces.
func (w *world) allow(audiences ...string) {
	w.T.Helper()
	list := sdk.List[string](audiences)
	w.update(sdk.TemplateIdentity{IdentityAudiences: &list})
}

func (w *world) update(set sdk.TemplateIdentity) {
	w.T.Helper()
	if err := w.change("tom", set); err != nil {
		w.T.Fatal(err)
	}
}

// change changes the template's audiences as a user.
func (w *world) change(user string, set sdk.TemplateIdentity) error {
	w.T.Helper()
	_, err := w.As(user).UpdateTemplate(w.T.Context(), w.template.ID, sdk.UpdateTemplateRequest{TemplateIdentity: set})
	return err
}

// foist makes an owner of the deployment create a workspace for a user, whose build has not run.
func (w *world) foist(user string) {
	w.T.Helper()
	w.User(user)
	req := sdk.CreateWorkspaceRequest{TemplateID: w.template.ID, Name: "foisted"}
	if _, err := w.As("olga").CreateWorkspace(w.T.Context(), user, req); err != nil {
		w.T.Fatal(err)
	}
}

// ask asks for a token as an agent does.
func (w *world) ask(agent uuid.UUID, audience string) (string, error) {
	w.T.Helper()
	w.mu.Lock()
	w.agent = agent
	w.mu.Unlock()
	got, err := w.agents.IDToken(w.T.Context(), connect.NewRequest(&agentpb.IDTokenRequest{Audience: audience}))
	if err != nil {
		return "", err
	}
	if until := time.Until(got.Msg.GetExpiresAt().AsTime()); until <= 0 || until > identity.AgentLifetime {
		w.T.Errorf("the token ends in %s", until)
	}
	return got.Msg.GetToken(), nil
}

func (w *world) mustAsk(agent uuid.UUID, audience string) string {
	w.T.Helper()
	token, err := w.ask(agent, audience)
	if err != nil {
		w.T.Fatal(err)
	}
	return token
}

// verify does what a cloud does that has just been told the issuer: it discovers the keys and verifies the token.
func (w *world) verify(token, audience string) (map[string]any, error) {
	w.T.Helper()
	provider, err := oidc.NewProvider(w.T.Context(), w.URL.String())
	if err != nil {
		w.T.Fatal(err)
	}
	verified, err := provider.Verifier(&oidc.Config{ClientID: audience}).Verify(w.T.Context(), token)
	if err != nil {
		return nil, err
	}
	claims := map[string]any{}
	return claims, verified.Claims(&claims)
}

func (w *world) claims(token, audience string) map[string]any {
	w.T.Helper()
	claims, err := w.verify(token, audience)
	if err != nil {
		w.T.Fatal(err)
	}
	return claims
}

// expect compares claims.
func expect(t *testing.T, got, want map[string]any) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: got %v, want %v", name, got[name], value)
		}
	}
}

// TestAgent checks that a verifier that has never heard of the deployment understands a workspace's token.
func TestAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ws, agent := w.Running("ann", "dev", w.template.ID)
	token := w.mustAsk(agent, vault)
	got := w.claims(token, vault)
	org, template, owner := w.Org.String(), w.template.ID.String(), w.User("ann").String()
	expect(t, got, map[string]any{
		"iss": w.URL.String(), "aud": vault, "kind": "agent", "organization_id": org, "organization": "default",
		"sub":         "agent:organization:" + org + ":template:" + template + ":owner:" + owner + ":workspace:" + ws.ID.String(),
		"template_id": template, "template": "docker", "workspace_id": ws.ID.String(), "workspace": "dev", "agent": "main",
		"owner_id": owner, "owner": "ann", "owner_email": "ann@example.com",
		"build_number": 1.0, "build_transition": "start",
	})
	if life := got["exp"].(float64) - got["iat"].(float64); life != identity.AgentLifetime.Seconds() {
		t.Errorf("it lives for %v seconds", life)
	}
	if got["nbf"].(float64) > got["iat"].(float64) {
		t.Error("it is not valid yet")
	}
	if again := w.claims(w.mustAsk(agent, vault), vault); again["jti"] == got["jti"] || again["sub"] != got["sub"] {
		t.Errorf("two tokens: %v and %v", got, again)
	}
	if _, err := w.verify(token, "https://other.example.com"); err == nil {
		t.Error("the token is one for another audience")
	}
	// Names change, and the subject does not.
	if err := w.As("ann").UpdateWorkspace(t.Context(), ws.ID, sdk.UpdateWorkspaceRequest{Name: "prod"}); err != nil {
		t.Fatal(err)
	}
	renamed := w.claims(w.mustAsk(agent, vault), vault)
	expect(t, renamed, map[string]any{"sub": got["sub"], "workspace": "prod"})
}

// refused asks for a token that must be refused with a sentence.
func (w *world) refused(what string, agent uuid.UUID, audience string, code connect.Code, says string) {
	w.T.Helper()
	token, err := w.ask(agent, audience)
	if connect.CodeOf(err) != code || !strings.Contains(err.Error(), says) || token != "" {
		w.T.Errorf("%s: got %v, want %s with %q", what, err, code, says)
	}
}

// TestRefusals: no token for an audience that the template does not name, however it is written, nor for an agent
// that may not run.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ws, agent := w.Running("ann", "dev", w.template.ID)
	const denied, invalid = connect.CodePermissionDenied, connect.CodeInvalidArgument
	for _, audience := range []string{
		"sts.amazonaws.com", vault + "/", "HTTPS://vault.example.com", vault[:len(vault)-1], "$(id)", "*",
		"https://vault.example.com'",
	} {
		w.refused(audience, agent, audience, denied, `The template "docker" does not allow`)
	}
	const edit = "coder templates edit docker --identity-audiences "
	w.refused("the remedy", agent, "a'b", denied, edit+`'https://vault.example.com,a'\''b'`)
	for _, audience := range []string{
		"", "\x00", vault + "\x00", vault + "\n", "\x1b[2J", vault + " ", "a b", vault + "," + vault, "é",
		"\u202e", strings.Repeat("a", 256),
	} {
		w.refused(audience, agent, audience, invalid, "audience")
	}

	// Another workspace, also of another owner, has a subject of its own.
	token := w.mustAsk(agent, vault)
	_, bobs := w.Running("bob", "dev", w.template.ID)
	mine, theirs := w.claims(token, vault), w.claims(w.mustAsk(bobs, vault), vault)
	if mine["sub"] == theirs["sub"] || theirs["owner"] != "bob" {
		t.Errorf("two workspaces: %v, %v", mine, theirs)
	}
	w.refused("an agent that does not exist", uuid.New(), vault, denied, "does not run this agent")

	// A workspace that another user began, of a template that its owner never started.
	w.foist("carl")
	carls := uuid.New()
	w.Daemon().Next().Finish(coderdtest.Built("s", coderdtest.Resource(carls)))
	w.refused("without the owner's consent", carls, vault, denied, "carl gives them with: coder restart")

	// An audience that the template no longer allows.
	w.allow()
	w.refused("no audience", agent, vault, denied, edit+vault)
	w.allow(vault)
	w.mustAsk(agent, vault)

	// The agent of a build that another one followed.
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	w.refused("a stopped workspace", agent, vault, denied, "does not run this agent")
	w.Build("ann", ws.ID, sdk.TransitionStart)
	next := uuid.New()
	w.Daemon().Next().Finish(coderdtest.Built("s", coderdtest.Resource(next)))
	w.refused("the agent of the build before", agent, vault, denied, "does not run this agent")
	expect(t, w.claims(w.mustAsk(next, vault), vault), map[string]any{"sub": mine["sub"], "build_number": 3.0})

	if _, err := w.As("olga").SuspendUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	w.refused("a suspended owner", next, vault, denied, "")
}

// TestBuild checks the token of a build: its subject is no agent's, and it names the owner only with consent.
func TestBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const cloud = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x"
	offered := func() string { return w.Daemon().Next().GetWorkspaceBuild().GetMetadata().GetIdToken() }
	w.Workspace("ann", "none", w.template.ID)
	if token := offered(); token != "" {
		t.Error("a build gets a token that its template does not ask for")
	}
	audience := cloud
	w.update(sdk.TemplateIdentity{IdentityBuildAudience: &audience})
	ws := w.Workspace("ann", "dev", w.template.ID)
	job := w.Daemon().Next()
	got := w.claims(job.GetWorkspaceBuild().GetMetadata().GetIdToken(), cloud)
	org, template := w.Org.String(), w.template.ID.String()
	subject := "build:organization:" + org + ":template:" + template + ":workspace:" + ws.ID.String()
	expect(t, got, map[string]any{
		"sub": subject, "kind": "build", "aud": cloud, "owner": "ann", "owner_id": w.User("ann").String(),
		"build_number": 1.0, "build_transition": "start", "template": "docker", "workspace": "dev", "agent": nil,
	})
	if life := got["exp"].(float64) - got["iat"].(float64); life != identity.BuildLifetime.Seconds() || life > 3600 {
		t.Errorf("it lives for %v seconds", life)
	}
	agent := uuid.New()
	job.Finish(coderdtest.Built("s", coderdtest.Resource(agent)))
	w.refused("the build's audience", agent, cloud, connect.CodePermissionDenied, "does not allow")

	w.foist("bob")
	nameless := map[string]any{"owner": nil, "owner_id": nil, "owner_email": nil, "template": "docker"}
	expect(t, w.claims(offered(), cloud), nameless)
	w.Build("ann", ws.ID, sdk.TransitionDelete)
	deletion := map[string]any{"sub": subject, "build_transition": "delete", "build_number": 2.0}
	expect(t, w.claims(offered(), cloud), deletion)
}

// get returns the body of an answer to a request without a session.
func (w *world) get(path string) []byte {
	w.T.Helper()
	res, err := http.Get(w.URL.JoinPath(path).String())
	if err != nil {
		w.T.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	kind := res.Header.Get("Content-Type")
	if err != nil || res.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/json") {
		w.T.Fatalf("%s: %s, %v\n%s", path, res.Status, err, body)
	}
	return body
}

// published returns the public keys as they are published.
func (w *world) published() (ids []string) {
	w.T.Helper()
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(w.get("/.well-known/jwks.json"), &set); err != nil {
		w.T.Fatal(err)
	}
	for _, key := range set.Keys {
		if key["alg"] != "RS256" || key["kty"] != "RSA" || key["use"] != "sig" || len(key) != 6 { // with kid, n and e
			w.T.Errorf("key %v", key)
		}
		ids = append(ids, key["kid"])
	}
	return ids
}

// TestRotation: verifiers know a key before it signs, and tokens of the key before count until the next rotation.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, agent := w.Running("ann", "dev", w.template.ID)
	olga := w.As("olga")
	first := w.mustAsk(agent, vault)
	before, err := olga.IdentityKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	two := []string{before.NextKey, before.CurrentKey}
	if known := w.published(); before.Issuer != w.URL.String() || before.PreviousKey != "" || !slices.Equal(known, two) {
		t.Errorf("keys %+v, published %v", before, known)
	}
	rotate := func(all bool) sdk.IdentityKeys {
		t.Helper()
		keys, err := olga.RotateIdentityKeys(t.Context(), sdk.RotateIdentityKeysRequest{All: all})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	after := rotate(false)
	if after.CurrentKey != before.NextKey || after.PreviousKey != before.CurrentKey || slices.Contains(two, after.NextKey) {
		t.Errorf("rotated from %+v to %+v", before, after)
	}
	second := w.mustAsk(agent, vault)
	for _, token := range []string{first, second} {
		w.claims(token, vault)
	}
	rotate(false)
	w.claims(second, vault)
	if _, err := w.verify(first, vault); err == nil {
		t.Error("a token of a key that is gone counts")
	}
	gone := w.published()
	rotate(true)
	if _, err := w.verify(second, vault); err == nil {
		t.Error("a token of the replaced keys counts")
	}
	for _, id := range w.published() {
		if slices.Contains(gone, id) {
			t.Errorf("the key %s is still there", id)
		}
	}
	w.claims(w.mustAsk(agent, vault), vault)

	// Only owners of the deployment see and rotate the keys, and the log has no secret of them.
	for _, user := range []string{"ann", "tom"} {
		all := sdk.RotateIdentityKeysRequest{All: true}
		if _, err := w.As(user).RotateIdentityKeys(t.Context(), all); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s rotates: %v", user, err)
		}
		if _, err := w.As(user).IdentityKeys(t.Context()); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s reads: %v", user, err)
		}
	}
	var rows int
	err = w.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM audit_logs
		WHERE resource_type = 'identity_keys' AND diff ? 'key_ids'`).Scan(&rows)
	if err != nil || rows != 3 {
		t.Errorf("%d rows in the audit log, %v", rows, err)
	}
}

// TestServers: servers that begin at the same moment agree on the keys, and one without the key of the database
// refuses to sign.
func TestServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	build := identity.Build{Audience: vault, Template: "docker"}
	var mu sync.Mutex
	var tokens []string
	var racing sync.WaitGroup
	for range 3 {
		server := identity.New(identity.Options{DB: w.DB, Logger: w.Log, Keys: w.States, AccessURL: w.URL})
		racing.Go(func() {
			token, err := server.ForBuild(t.Context(), w.DB.Queries, build)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			tokens = append(tokens, token.Token.Reveal())
		})
	}
	racing.Wait()
	for _, token := range tokens {
		w.claims(token, vault)
	}
	stored, err := w.DB.GetSetting(t.Context(), "identity_keys")
	if err != nil || bytes.Contains(stored, []byte(`"kty"`)) {
		t.Errorf("the keys can be read in the database, or %v", err)
	}
	log := slog.New(slog.DiscardHandler)
	stranger := identity.New(identity.Options{DB: w.DB, Logger: log, Keys: coderdtest.Keyring(t), AccessURL: w.URL})
	if _, err := stranger.ForBuild(t.Context(), w.DB.Queries, build); fault.CodeOf(err) != fault.Unavailable ||
		!strings.Contains(err.Error(), "coder identity rotate --all") {
		t.Errorf("a server with another key: %v", err)
	}
	rotate := func(all bool) error {
		return w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			_, _, err := stranger.Rotate(t.Context(), q, all)
			return err
		})
	}
	if err := rotate(false); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("it rotates keys that it cannot read: %v", err)
	}
	if now, err := w.DB.GetSetting(t.Context(), "identity_keys"); err != nil || !bytes.Equal(now, stored) {
		t.Errorf("it replaced the keys, %v", err)
	}
	if err := rotate(true); err != nil {
		t.Errorf("it cannot replace the keys: %v", err)
	}
	if _, err := stranger.ForBuild(t.Context(), w.DB.Queries, build); err != nil {
		t.Error(err)
	}
}

// TestTemplateSettings: the settings are what the API and the audit log show, and what no token can have as its
// audience is refused.
func TestTemplateSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tom := w.As("tom")
	read := func() (sdk.List[string], string) {
		t.Helper()
		got, err := tom.Template(t.Context(), w.template.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.IdentityAudiences, got.IdentityBuildAudience
	}
	cloud := "sts.amazonaws.com"
	w.allow(cloud, vault, cloud)
	w.update(sdk.TemplateIdentity{IdentityBuildAudience: &cloud})
	if audiences, build := read(); !slices.Equal(audiences, []string{cloud, vault}) || build != cloud {
		t.Errorf("got %q and %q", audiences, build)
	}
	var many sdk.List[string]
	for range identity.MaxAudiences + 1 {
		many = append(many, "a"+strings.Repeat("b", len(many)))
	}
	list := func(audiences ...string) sdk.TemplateIdentity {
		l := sdk.List[string](audiences)
		return sdk.TemplateIdentity{IdentityAudiences: &l}
	}
	bad := "a\tb"
	for what, set := range map[string]sdk.TemplateIdentity{
		"empty": list(""), "a comma": list("a,b"), "a line": list("a\nb"), "an escape": list("\x1b"),
		"too long":   list(strings.Repeat("a", 256)),
		"one of two": list(vault, " "), "not ASCII": list("ä"), "too many": list(many...),
		"of builds": {IdentityBuildAudience: &bad},
	} {
		if err := w.change("tom", set); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	set := list("evil.example.com")
	for _, user := range []string{"ann", "bob"} {
		w.User(user)
		err := w.change(user, set)
		if code := fault.CodeOf(err); code != fault.Forbidden && code != fault.NotFound {
			t.Errorf("%s changes the template: %v", user, err)
		}
	}
	if audiences, build := read(); !slices.Equal(audiences, []string{cloud, vault}) || build != cloud {
		t.Errorf("refused changes left %q and %q", audiences, build)
	}
	var rows int
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM audit_logs WHERE resource_type = 'template'
		AND (diff->'identity_audiences'->'new' = '["sts.amazonaws.com", "https://vault.example.com"]'
			OR diff->'identity_build_audience'->>'new' = 'sts.amazonaws.com')`).Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows in the audit log, %v", rows, err)
	}
}

// FuzzCheckAudience: what passes is printable, and one element of a list.
func FuzzCheckAudience(f *testing.F) {
	for _, audience := range []string{vault, "", "a,b", "a b", "\x00", "é", "sts.amazonaws.com"} {
		f.Add(audience)
	}
	f.Fuzz(func(t *testing.T, audience string) {
		if identity.CheckAudience(audience) != nil {
			return
		}
		list, err := identity.CheckAudiences(strings.Split(audience, ","))
		if err != nil || len(list) != 1 || len(audience) > 255 {
			t.Errorf("%q passes: %q, %v", audience, list, err)
		}
		for _, c := range []byte(audience) {
			if c <= ' ' || c > '~' {
				t.Errorf("%q passes", audience)
			}
		}
	})
}
