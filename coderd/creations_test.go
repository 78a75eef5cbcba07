package coderd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// unkeyed are the routes that create something and do not recognize repetitions, with the reason.
var unkeyed = map[string]string{
	"POST /api/v2/users/first":                                 "there is no user yet who could have keys; the second request is refused",
	"POST /api/v2/files":                                       "the same bytes are the same file",
	"POST /api/v2/users/{user}/secrets":                        "the name is unique; the answer of a repetition says that it exists",
	"POST /api/v2/users/{user}/secrets/batch":                  "the same",
	"POST /api/v2/users/{user}/ssh-keys":                       "a key is registered once; the answer of a repetition says that it is",
	"POST /api/v2/users/{user}/devices":                        "the same",
	"POST /api/v2/ssh-certificates":                            "nothing is stored; a repetition makes a certificate of the same key for the same session",
	"POST /api/v2/organizations/{organization}/members/{user}": "a user is a member once",
	"POST /scim/v2/Users":                                      "identity providers look for the account before they repeat, and its address is unique",
	"POST /scim/v2/Groups":                                     "the same, and its name is",
	"POST /api/v2/organizations/{organization}/members/roles":  "the name is unique",
	"POST /api/v2/users/{user}/login-requests/{code}":          "a program that waits is answered once",
	"POST /api/v2/external-auth/{externalauth}/device":         "a service accepts a device code once",
}

// TestCreatingRoutesRecognizeRepetitions holds that a route that creates something says how it answers a request that is repeated, and that
// docs/servers.md lists these routes.
func TestCreatingRoutesRecognizeRepetitions(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	keyed := map[string]string{} // the status of a repetition, by route
	for _, route := range s.Mux.Routes() {
		switch {
		case route.Creation.Reads != "":
			keyed[route.Pattern] = "201"
		case route.Creation.Secret != "":
			keyed[route.Pattern] = "409"
		}
		creates := strings.HasPrefix(route.Pattern, "POST ") && route.Audit.Action == string(audit.Create)
		_, declared := keyed[route.Pattern]
		if _, exempt := unkeyed[route.Pattern]; creates && declared == exempt {
			t.Errorf("%s: declares how repetitions are answered: %t; exempt: %t", route.Pattern, declared, exempt)
		}
	}
	page, err := os.ReadFile("../docs/servers.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(POST [^`]+)` \\| (201|409) \\|").FindAllStringSubmatch(string(page), -1) {
		listed[row[1]] = row[2]
	}
	if diff := cmp.Diff(keyed, listed); diff != "" {
		t.Errorf("docs/servers.md (-routes +listed):\n%s", diff)
	}
}

// creations is a server with a template, whose API is requested with keys.
type creations struct {
	*coderdtest.Server
	template sdk.Template
}

func newCreations(t *testing.T) *creations {
	t.Helper()
	c := &creations{Server: coderdtest.New(t)}
	c.template = c.Template("plain", &provisionerpb.ImportResult{})
	return c
}

// post sends a request with a key, and returns the answer's status, id and text.
func (c *creations) post(user, key, path string, body any) (status int, id, text string) {
	c.T.Helper()
	return c.postTo(c.URL, user, key, path, body)
}

func (c *creations) postTo(server *url.URL, user, key, path string, body any) (status int, id, text string) {
	c.T.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		c.T.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.T.Context(), http.MethodPost, server.String()+"/api/v2/"+path, bytes.NewReader(data))
	if err != nil {
		c.T.Fatal(err)
	}
	r.Header = http.Header{sdk.SessionHeader: {c.Token(user)}, "Content-Type": {"application/json"}, sdk.KeyHeader: {key}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.T.Error(err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.T.Error(err)
	}
	var made struct{ ID string }
	_ = json.Unmarshal(answer, &made) // an error has none
	if resp.Header.Get(sdk.KeysHeader) == "" {
		c.T.Errorf("POST %s: the answer does not say that keys are recognized", path)
	}
	return resp.StatusCode, made.ID, string(answer)
}

func (c *creations) count(table string) (n int) {
	c.T.Helper()
	if err := c.DB.Pool.QueryRow(c.T.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		c.T.Fatal(err)
	}
	return n
}

func newKey() string { return secret.Text(32) }

// TestRepetitions repeats requests that create something: it happens once, and each repetition gets what was created.
func TestRepetitions(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	ws, _ := c.Running("ann", "built", c.template.ID)
	again, _ := c.Running("ann", "again", c.template.ID)
	restored := c.Workspace("ann", "restored", c.template.ID)
	c.Daemon().Next().Finish(coderdtest.Built(`{"version":4,"serial":1,"lineage":"own","resources":[]}`))
	version := c.Version(nil, &provisionerpb.ImportResult{})
	org := "organizations/" + sdk.DefaultOrganization
	for _, row := range []struct {
		user, path, table string
		body              any
	}{
		{"ann", "users/me/workspaces", "workspaces", sdk.CreateWorkspaceRequest{Name: "one", TemplateID: c.template.ID}},
		{"ann", org + "/members/me/workspaces", "workspaces", sdk.CreateWorkspaceRequest{Name: "two", TemplateID: c.template.ID}},
		{"ann", "workspaces/" + ws.ID.String() + "/plan", "provisioner_jobs", sdk.CreatePlanRequest{}},
		{"ann", "workspaces/" + ws.ID.String() + "/builds", "workspace_builds", sdk.CreateBuildRequest{Transition: sdk.TransitionStop}},
		{"ann", "workspaces/" + again.ID.String() + "/restart", "workspace_builds", sdk.CreateBuildRequest{}},
		{"olga", "workspacebuilds/" + restored.LatestBuild.ID.String() + "/restore", "workspace_builds", sdk.RestoreStateRequest{}},
		{"tom", org + "/templates", "templates", sdk.CreateTemplateRequest{Name: "second", VersionID: version.ID}},
		{"tom", org + "/templateversions", "template_versions", sdk.CreateTemplateVersionRequest{StorageMethod: sdk.StorageFile, FileID: c.File("tom"), Provisioner: sdk.ProvisionerTerraform}},
		{"ann", "templateversions/" + c.template.ActiveVersionID.String() + "/dry-run", "provisioner_jobs", sdk.CreateDryRunRequest{WorkspaceName: "x"}},
		{"olga", "users", "users", sdk.CreateUserRequest{Username: "zoe", Email: "zoe@example.com", Password: "correct horse battery", LoginType: sdk.LoginPassword}},
		{"olga", "organizations", "organizations", sdk.CreateOrganizationRequest{Name: "ops"}},
		{"olga", org + "/groups", "groups", sdk.CreateGroupRequest{Name: "ops"}},
	} {
		t.Run(row.path, func(t *testing.T) {
			c.Token(row.user) // exists before users are counted
			key, before, recorded := newKey(), c.count(row.table), c.count("audit_logs")
			status, id, text := c.post(row.user, key, row.path, row.body)
			if status != http.StatusCreated || id == "" {
				t.Fatalf("created with %d %s", status, text)
			}
			once := c.count("audit_logs")
			for range 2 {
				if again, same, text := c.post(row.user, key, row.path, row.body); again != http.StatusCreated || same != id {
					t.Errorf("repeated: got %d %s, want what was created, %s", again, text, id)
				}
			}
			if n := c.count(row.table) - before; n != 1 {
				t.Errorf("%d rows of %s were added", n, row.table)
			}
			if n := c.count("audit_logs"); once == recorded || n != once {
				t.Errorf("the audit log has %d rows more, and %d after the repetitions", once-recorded, n-recorded)
			}
		})
	}
}

// TestRepeatedSecrets checks that a repetition never shows a secret again: it is refused, and creates no other one.
func TestRepeatedSecrets(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	for path, row := range map[string]struct {
		table, secret string
		body          any
	}{
		"users/me/keys/tokens": {"api_keys", "key", sdk.CreateTokenRequest{}},
		"users/me/keys":        {"api_keys", "key", nil},
		"organizations/" + sdk.DefaultOrganization + "/provisionerkeys": {"provisioner_keys", "key", sdk.CreateProvisionerKeyRequest{Name: "rack"}},
		"workspaceproxies": {"workspace_proxies", "proxy_token", sdk.CreateWorkspaceProxyRequest{Name: "eu"}},
	} {
		c.Token("olga")
		key, before := newKey(), c.count(row.table)
		status, _, first := c.post("olga", key, path, row.body)
		if status != http.StatusCreated || !strings.Contains(first, `"`+row.secret+`"`) {
			t.Fatalf("%s: created with %d %s", path, status, first)
		}
		status, _, text := c.post("olga", key, path, row.body)
		if status != http.StatusConflict || !strings.Contains(text, "is shown only once") || strings.Contains(text, `"`+row.secret+`"`) {
			t.Errorf("%s: repeated: %d %s", path, status, text)
		}
		if n := c.count(row.table) - before; n != 1 {
			t.Errorf("%s: %d rows of %s were added", path, n, row.table)
		}
	}
}

// TestForeignKeys attacks the keys of requests: they yield nothing to another user, nor for another request, and nothing that the user may no
// longer see.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	key, request := newKey(), sdk.CreateWorkspaceRequest{Name: "dev", TemplateID: c.template.ID}
	_, anns, _ := c.post("ann", key, "users/me/workspaces", request)
	status, bobs, text := c.post("bob", key, "users/me/workspaces", request)
	if status != http.StatusCreated || bobs == anns {
		t.Errorf("another user's key: %d %s; want a workspace of their own", status, text)
	}
	for name, other := range map[string]struct {
		path string
		body any
	}{
		"another body": {"users/me/workspaces", sdk.CreateWorkspaceRequest{Name: "dev2", TemplateID: c.template.ID}},
		"another path": {"organizations/" + sdk.DefaultOrganization + "/members/me/workspaces", request},
		"another kind": {"users/me/keys/tokens", sdk.CreateTokenRequest{}},
	} {
		if status, _, text := c.post("ann", key, other.path, other.body); status != http.StatusUnprocessableEntity || strings.Contains(text, anns) {
			t.Errorf("%s: got %d %s, want 422", name, status, text)
		}
	}
	c.Exec(`UPDATE workspaces SET owner_id = $1, name = 'taken' WHERE id = $2`, c.User("bob"), anns)
	if status, _, text := c.post("ann", key, "users/me/workspaces", request); status != http.StatusNotFound {
		t.Errorf("what the user may no longer see: got %d %s, want 404", status, text)
	}
	for _, key := range []string{"", "short", strings.Repeat("k", 256), strings.Repeat("k", 15) + "\u00e9", strings.Repeat("k", 20) + "\t."} {
		if status, _, text := c.post("ann", key, "users/me/keys/tokens", sdk.CreateTokenRequest{}); status != http.StatusBadRequest {
			t.Errorf("key %q: got %d %s, want 400", key, status, text)
		}
	}
	// A key that a day has passed over is a new one, and a user's oldest keys make room.
	c.Exec(`UPDATE creation_keys SET created_at = now() - interval '25 hours' WHERE object_id = $1`, anns)
	if status, id, text := c.post("ann", key, "users/me/workspaces", request); status != http.StatusCreated || id == anns {
		t.Errorf("an old key: got %d %s, want a new workspace", status, text)
	}
	c.Exec(`INSERT INTO creation_keys (user_id, key_hash, request_id, request_hash, object_id, created_at)
		SELECT $1, sha256(n::text::bytea), $1, sha256(''), $1, now() - interval '1 hour' * n / 1000 FROM generate_series(1, 2000) n`, c.User("ann"))
	c.post("ann", newKey(), "users/me/keys/tokens", sdk.CreateTokenRequest{})
	if n := c.count("creation_keys WHERE user_id = '" + c.User("ann").String() + "'"); n != 1000 {
		t.Errorf("%d keys of a user are kept", n)
	}
}

// TestKeysAtRest checks that neither a key nor a request's body can be read from the database, or guessed with what is there.
func TestKeysAtRest(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	key := newKey()
	request := sdk.CreateUserRequest{Username: "zoe", Email: "zoe@example.com", Password: "correct horse battery", LoginType: sdk.LoginPassword}
	if status, _, text := c.post("olga", key, "users", request); status != http.StatusCreated {
		t.Fatal(text)
	}
	var same, found int
	if err := c.DB.Pool.QueryRow(t.Context(), `SELECT count(DISTINCT request_hash), count(*) FILTER (WHERE k::text LIKE '%' || $1 || '%') FROM creation_keys k`, key).
		Scan(&same, &found); err != nil || same != 1 || found != 0 {
		t.Errorf("%d hashes, key found %d times, %v", same, found, err)
	}
	// The same request with another key has another hash: one that is guessed can only be checked with the key.
	if status, _, text := c.post("olga", newKey(), "organizations", sdk.CreateOrganizationRequest{Name: "ops"}); status != http.StatusCreated {
		t.Fatal(text)
	}
	c.Exec(`DELETE FROM creation_keys WHERE request_hash = sha256(convert_to($1, 'UTF8'))`, "POST /api/v2/organizations\n"+`{"name":"ops"}`)
	if n := c.count("creation_keys"); n != 2 {
		t.Errorf("%d keys are left: the hash of a request follows from the request alone", n)
	}
}

// TestSimultaneousRepetitions checks that a request that is repeated before the first one has ended, at the same server or at another one, waits
// for it, and creates nothing.
func TestSimultaneousRepetitions(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	other := coderdtest.New(t, func(o *coderd.Options) { o.DB, o.States = c.DB, c.States })
	c.Token("ann")
	const ofWorkspaces = "audit_logs WHERE resource_type = 'workspace'" // the first use of a template is recorded as well
	recorded := c.count(ofWorkspaces)
	key := newKey()
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			server := []*url.URL{c.URL, other.URL}[i%2]
			status, id, text := c.postTo(server, "ann", key, "users/me/workspaces", sdk.CreateWorkspaceRequest{Name: "dev", TemplateID: c.template.ID})
			if ids[i] = id; status != http.StatusCreated {
				t.Errorf("got %d %s", status, text)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("got the workspaces %q, want one", ids)
			break
		}
	}
	if n := c.count("workspaces"); n != 1 {
		t.Errorf("there are %d workspaces", n)
	}
	if n := c.count(ofWorkspaces) - recorded; n != 1 {
		t.Errorf("the audit log has %d rows more", n)
	}
}

// TestRepetitionWaits checks, for creations that no unique name keeps apart, that a repetition at another server waits for the end of the first
// request, and gets what it created, or creates it if the first one failed.
func TestRepetitionWaits(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	other := coderdtest.New(t, func(o *coderd.Options) { o.DB, o.States = c.DB, c.States })
	path := "templateversions/" + c.template.ActiveVersionID.String() + "/dry-run"
	for _, commits := range []bool{true, false} {
		key, before := newKey(), c.count("provisioner_jobs")
		c.Token("ann")
		tx, err := c.DB.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `LOCK TABLE creation_keys IN SHARE MODE`); err != nil { // the first request stops where it notes its key
			t.Fatal(err)
		}
		type answer struct {
			status int
			id     string
		}
		answers := make(chan answer, 2)
		for _, server := range []*url.URL{c.URL, other.URL} {
			go func() {
				status, id, _ := c.postTo(server, "ann", key, path, sdk.CreateDryRunRequest{WorkspaceName: "x"})
				answers <- answer{status, id}
			}()
		}
		testwait.Until(t, "both requests are in their transactions", c.Counts(2, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`))
		if !commits {
			c.Exec(`SELECT pg_cancel_backend(min(pid)) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			if a := <-answers; a.status != http.StatusServiceUnavailable {
				t.Errorf("the request that was canceled: %+v", a)
			}
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := <-answers
		if first.status != http.StatusCreated || first.id == "" {
			t.Errorf("got %+v", first)
		}
		if commits {
			if second := <-answers; second != first {
				t.Errorf("got %+v and %+v", first, second)
			}
		}
		if n := c.count("provisioner_jobs") - before; n != 1 {
			t.Errorf("%d jobs were created", n)
		}
	}
}

// TestFailedCreationsCanBeRepeated checks that a request that created nothing leaves its key unused.
func TestFailedCreationsCanBeRepeated(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	c.Workspace("ann", "dev", c.template.ID)
	key, request := newKey(), sdk.CreateWorkspaceRequest{Name: "dev", TemplateID: c.template.ID}
	if status, _, text := c.post("ann", key, "users/me/workspaces", request); status != http.StatusConflict || !strings.Contains(text, "already has a workspace") {
		t.Errorf("a name that is taken: got %d %s", status, text)
	}
	c.Exec(`UPDATE workspaces SET name = 'other'`)
	if status, id, text := c.post("ann", key, "users/me/workspaces", request); status != http.StatusCreated || uuid.Validate(id) != nil {
		t.Errorf("repeated when the name is free: got %d %s", status, text)
	}
}

// lossy stands before a server like a balancer, and loses answers to creations: it cuts the connection, or answers 502 in the server's place.
type lossy struct {
	url  *url.URL
	lose atomic.Int32 // how many answers
	cut  atomic.Bool
}

func newLossy(t *testing.T, server *url.URL) *lossy {
	t.Helper()
	l := &lossy{}
	proxy := httputil.NewSingleHostReverseProxy(server)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || l.lose.Add(-1) < 0 {
			proxy.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(httptest.NewRecorder(), r) // the server has carried it out
		if l.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "<html>", http.StatusBadGateway)
	}))
	t.Cleanup(between.Close)
	var err error
	if l.url, err = url.Parse(between.URL); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLostAnswers checks that the command line's client creates once what it asks for, although answers are lost.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	c := newCreations(t)
	l := newLossy(t, c.URL)
	client := sdk.New(l.url, secret.Token(c.Token("ann")), sdk.Options{})
	t.Cleanup(client.HTTP().CloseIdleConnections)
	if _, err := client.User(t.Context(), sdk.Me); err != nil { // as each command does first
		t.Fatal(err)
	}
	for i, cut := range []bool{false, true} {
		l.cut.Store(cut)
		l.lose.Store(2)
		ws, err := client.CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{Name: fmt.Sprint("dev", i), TemplateID: c.template.ID})
		if err != nil || ws.Name != fmt.Sprint("dev", i) {
			t.Errorf("create with lost answers (cut: %t): %+v, %v", cut, ws.Name, err)
		}
		l.lose.Store(1)
		if _, err := client.CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{}); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("create a token whose answer is lost (cut: %t): %v, want a conflict", cut, err)
		}
	}
	if n := c.count("workspaces"); n != 2 {
		t.Errorf("there are %d workspaces", n)
	}
	// Without an answer before, the client does not know whether the server recognizes keys.
	fresh := sdk.New(l.url, secret.Token(c.Token("ann")), sdk.Options{})
	t.Cleanup(fresh.HTTP().CloseIdleConnections)
	l.cut.Store(false)
	l.lose.Store(1)
	if _, err := fresh.CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{}); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("the first request: %v, want the proxy's answer", err)
	}
	// A server that is not there at all is not waited for.
	nowhere := sdk.New(&url.URL{Scheme: "http", Host: testport.Addr()}, "", sdk.Options{})
	if _, err := nowhere.User(t.Context(), sdk.Me); fault.CodeOf(err) != fault.Unavailable {
		t.Error(err)
	}
}
