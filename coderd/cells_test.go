package coderd_test

import (
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

// cast are the actors of the permission table's test: one for each relation that a row can list, and two without any. They are named
// after their relations to the objects of the organization east.
type cast struct {
	name      string   // of the user
	relations []string // to the objects of east
}

// outsider administers another organization; stranger belongs to none.
const outsider, stranger = "outsider", "stranger"

// others are the actors that hold more than the relation that their row of the table names.
var others = map[string][]string{
	rbac.RelationUse:   {rbac.RelationMember},
	rbac.RelationAdmin: {rbac.RelationUse, rbac.RelationMember},
	rbac.RelationSelf:  {rbac.RelationMember},
}

func everyActor() []cast {
	var out []cast
	for _, relation := range rbac.Relations() {
		c := cast{strings.Trim(strings.NewReplacer("'", "", ": ", "-", " ", "-").Replace(relation), "-"), append([]string{relation}, others[relation]...)}
		if rbac.IsOrganizationRole(relation) {
			c.relations = append(c.relations, rbac.RelationMember)
		}
		out = append(out, c)
	}
	return append(out, cast{name: outsider}, cast{name: stranger})
}

// holds reports whether a row of the table allows the actor its action.
func (c cast) holds(row rbac.Row, extra ...string) bool {
	if row.Power == (rbac.Power{Action: rbac.Create, Resource: rbac.File}) && c.name == outsider {
		return true // who publishes templates anywhere uploads files, which belong to no organization
	}
	return slices.ContainsFunc(slices.Concat(c.relations, extra), func(r string) bool { return slices.Contains(row.Relations, r) })
}

// vars are the values of a probe's placeholders.
type vars map[string]string

func (v vars) fill(text string) string {
	for name, value := range v {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// elsewhere returns the same values with random ids.
func (v vars) elsewhere() vars {
	out := maps.Clone(v)
	for name, value := range v {
		if _, err := uuid.Parse(value); err == nil {
			out[name] = uuid.NewString()
		}
	}
	return out
}

// cells is a server with the organizations east and west, one actor for each relation to the objects of east, and those objects: they
// are owned by the actor self, and shared with the actors named after shared.
type cells struct {
	*coderdtest.Server
	actors     []cast
	east, west uuid.UUID
	standing   vars
	shared     rbac.Sharing
	n          int
}

func newCells(t *testing.T) *cells {
	w := &cells{Server: coderdtest.New(t, coderdtest.GitHub, coderdtest.WireGuard), actors: everyActor(), east: uuid.New(), west: uuid.New()}
	w.Exec(`INSERT INTO organizations (id, name) VALUES ($1, 'east'), ($2, 'west')`, w.east, w.west)
	for _, a := range w.actors {
		id := w.User(a.name)
		switch {
		case rbac.IsSiteRole(a.relations0()):
			w.Exec(`UPDATE users SET roles = ARRAY[$2] WHERE id = $1`, id, a.relations[0])
			w.join(w.east, a.name+"-inside") // the same, and a member
			w.Exec(`UPDATE users SET roles = ARRAY[$2] WHERE id = $1`, w.User(a.name+"-inside"), a.relations[0])
		case rbac.IsOrganizationRole(a.relations0()):
			w.join(w.east, a.name, a.relations[0])
		case a.name == outsider:
			w.join(w.west, a.name, rbac.RoleOrganizationAdmin)
		case a.name != stranger:
			w.join(w.east, a.name)
		}
	}
	w.Exec(`DELETE FROM organization_members WHERE organization_id = $1`, w.Org)
	w.shared = rbac.Sharing{w.User(w.named(rbac.RelationUse)): rbac.LevelUse, w.User(w.named(rbac.RelationAdmin)): rbac.LevelAdmin}
	w.standing = w.objects()
	return w
}

func (c cast) relations0() string {
	if len(c.relations) == 0 {
		return ""
	}
	return c.relations[0]
}

// named returns the name of the actor with a relation.
func (w *cells) named(relation string) string {
	i := slices.IndexFunc(w.actors, func(c cast) bool { return c.relations0() == relation })
	return w.actors[i].name
}

func (w *cells) owner() string { return w.named(rbac.RelationSelf) }

func (w *cells) join(org uuid.UUID, user string, roles ...string) {
	w.Exec(`INSERT INTO organization_members (organization_id, user_id, roles) VALUES ($1, $2, $3)`, org, w.User(user), append([]string{}, roles...))
}

// next returns a new name.
func (w *cells) next() string {
	w.n++
	return fmt.Sprintf("n%d", w.n)
}

// file writes a source archive of the actor self.
func (w *cells) file() string { return w.fileOf(w.owner()) }

func (w *cells) fileOf(user string) string {
	w.Archive = []byte(w.next())
	return w.File(user).String()
}

func (w *cells) job(org uuid.UUID, kind sdk.JobType, status sdk.JobStatus, file string) string {
	id := uuid.NewString()
	w.Exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, completed_at) VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7 THEN now() END)`,
		id, org, w.User(w.owner()), string(kind), file, string(status), status.Ended())
	return id
}

// version writes a version; template "" means that it belongs to none.
func (w *cells) version(org uuid.UUID, template, file string) string {
	id := uuid.NewString()
	w.Exec(`INSERT INTO template_versions (id, organization_id, job_id, name, created_by, template_id) VALUES ($1, $2, $3, $4, $5, nullif($6, '')::uuid)`,
		id, org, w.job(org, sdk.JobTemplateImport, sdk.JobSucceeded, file), w.next(), w.User(w.owner()), template)
	w.Exec(`INSERT INTO template_version_tags (template_version_id, tags) VALUES ($1, '{}')`, id)
	return id
}

// template writes a template and returns its id and that of its version.
func (w *cells) template(org uuid.UUID, sharing rbac.Sharing, file string) (id, version string) {
	id, version = uuid.NewString(), w.version(org, "", file)
	w.Exec(`INSERT INTO templates (id, organization_id, name, active_version_id, created_by, sharing) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, org, w.next(), version, w.User(w.owner()), sharing)
	w.Exec(`UPDATE template_versions SET template_id = $2 WHERE id = $1`, version, id)
	return id, version
}

// workspace writes a running workspace with an agent and an app.
func (w *cells) workspace(org uuid.UUID, owner, template string, sharing rbac.Sharing) vars {
	v := vars{"ws": uuid.NewString(), "build": uuid.NewString(), "agent": uuid.NewString(), "wsname": w.next()}
	w.Exec(`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name, sharing) VALUES ($1, $2, $3, $4, $5, $6)`, v["ws"], org, w.User(owner), template, v["wsname"], sharing)
	job := w.job(org, sdk.JobWorkspaceBuild, sdk.JobSucceeded, w.file())
	w.Exec(`INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id)
		SELECT $1, $2, 1, active_version_id, $3, 'start', $4 FROM templates WHERE id = $5`, v["build"], v["ws"], job, w.User(owner), template)
	resource := uuid.New()
	w.Exec(`INSERT INTO workspace_resources (id, job_id, transition, type, name) VALUES ($1, $2, 'start', 'x', 'y')`, resource, job)
	w.Exec(`INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, token_hash) VALUES ($1, $2, $3, 1, 'main', $4)`, v["agent"], resource, v["ws"], []byte(v["agent"]))
	w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, url) VALUES ($1, $2, 'code', 'http://localhost:1')`, uuid.New(), v["agent"])
	return v
}

func (w *cells) group(org uuid.UUID) string {
	id := uuid.NewString()
	w.Exec(`INSERT INTO groups (id, organization_id, name) VALUES ($1, $2, $3)`, id, org, w.next())
	return id
}

// objects writes the objects of east that probes read, and an open template.
func (w *cells) objects() vars {
	v := vars{"self": w.owner(), "selfid": w.User(w.owner()).String(), "east": "east", "file": w.file(), "group": w.group(w.east), "member": w.named(rbac.RelationMember), "memberid": w.User(w.named(rbac.RelationMember)).String()}
	v["tpl"], v["version"] = w.template(w.east, w.shared, v["file"])
	v["open"], v["openversion"] = w.template(w.east, rbac.Sharing{w.east: rbac.LevelUse}, w.file())
	v["job"] = w.job(w.east, sdk.JobTemplateImport, sdk.JobSucceeded, w.file())
	maps.Copy(v, w.workspace(w.east, w.owner(), v["open"], w.shared))
	v["key"], _, _ = strings.Cut(w.Token(w.owner()), "-")
	w.Exec(`INSERT INTO provisioner_keys (id, organization_id, name, secret_hash, created_by) VALUES ($1, $2, 'standing', $4, $3)`, uuid.New(), w.east, w.User(w.owner()), []byte(w.next()))
	w.Exec(`INSERT INTO provisioner_daemons (id, organization_id, name, tags, last_seen_at) VALUES ($1, $2, 'daemon', jsonb_build_object('scope', 'user', 'owner', $3::text), now())`, uuid.New(), w.east, w.User(w.owner()))
	w.Exec(`INSERT INTO organization_roles (organization_id, name) VALUES ($1, 'standing')`, w.east)
	w.Exec(`INSERT INTO audit_logs (id, organization_id, user_id, actor, action, resource_type, resource_id, resource_target, diff, status_code) VALUES ($1, $2, $3, 'x', 'create', 'group', $4, 'audited', '{}', 201)`,
		uuid.New(), w.east, w.User(w.owner()), v["group"])
	w.Exec(`INSERT INTO connection_logs (id, connect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type) VALUES ($1, now(), $2, $3, $4, 'connected', $5, 'main', 'ssh')`,
		uuid.New(), w.east, w.User(w.owner()), v["ws"], v["agent"])
	_, events := w.send(w.owner(), "GET", "/api/v2/notifications/templates/system", "")
	if _, after, ok := strings.Cut(events, `"id":"`); ok {
		v["event"] = after[:36]
	}
	v["public"], v["wgkey"] = publicKey(w.T), wireGuardKey(w.T)
	w.send(w.owner(), "POST", "/api/v2/users/me/secrets", `{"name": "standing", "value": "x", "env_name": "STANDING"}`)
	return v
}

// publicKey returns a new public SSH key, as ssh-keygen writes it.
func publicKey(t testing.TB) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// sshKeyOf adds a public SSH key to a user's, and returns its id.
func (w *cells) sshKeyOf(user string) string {
	w.T.Helper()
	key, err := w.As(user).CreateUserSSHKey(w.T.Context(), sdk.Me, sdk.CreateUserSSHKeyRequest{PublicKey: publicKey(w.T)})
	if err != nil {
		w.T.Fatal(err)
	}
	return key.ID.String()
}

// wireGuardKey returns a new public key of WireGuard.
func wireGuardKey(t testing.TB) string {
	t.Helper()
	pair, err := wgquick.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Public.String()
}

// deviceOf adds a device to a user's, in place of those that they have, and returns its id.
func (w *cells) deviceOf(user string) string {
	w.T.Helper()
	w.Exec(`DELETE FROM user_devices WHERE user_id = $1`, w.User(user))
	device, err := w.As(user).CreateUserDevice(w.T.Context(), sdk.Me, sdk.CreateUserDeviceRequest{Name: "standing", PublicKey: wireGuardKey(w.T)})
	if err != nil {
		w.T.Fatal(err)
	}
	return device.ID.String()
}

// send makes a request as a user.
func (w *cells) send(user, method, path, body string) (int, string) {
	return w.sendWith(w.Token(user), method, path, body)
}

// sendWith makes a request with a token.
func (w *cells) sendWith(token, method, path, body string) (int, string) {
	var payload io.Reader = http.NoBody
	if body != "" {
		payload = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, path, payload)
	r.Header.Set(sdk.SessionHeader, token)
	if strings.HasSuffix(path, "/files") {
		r.Header.Set("Content-Type", sdk.ContentTypeTar)
	}
	recorder := httptest.NewRecorder()
	w.Handler.ServeHTTP(recorder, r)
	return recorder.Code, recorder.Body.String()
}

func denies(status int) bool { return status == 401 || status == 403 || status == 404 }

// TestEveryCell walks the permission table: for each row and each relation, authcheck answers what the table says, and a real request
// to a real object is allowed or refused accordingly. It is the proof of docs/roles.md.
func TestEveryCell(t *testing.T) {
	t.Parallel()
	w := newCells(t)
	t.Run("lists", func(t *testing.T) { w.T = t; w.lists(t) })
	t.Run("authcheck", func(t *testing.T) { w.T = t; w.authcheck(t) })
	tried := 0
	t.Run("routes", func(t *testing.T) {
		w.T = t
		for _, row := range rbac.Rows() {
			c, ok := cellRoutes[row.Power]
			if !ok || len(c.probes) == 0 && c.without == "" {
				t.Errorf("no request is listed for %s %s in cellRoutes, and no reason why there is none", row.Action, row.Resource)
			}
			for _, p := range c.probes {
				for _, a := range w.actors {
					w.try(t, row, p, a)
					tried++
				}
			}
		}
	})
	for power := range cellRoutes {
		if !slices.ContainsFunc(rbac.Rows(), func(r rbac.Row) bool { return r.Power == power }) {
			t.Errorf("cellRoutes has %s %s, the permission table does not", power.Action, power.Resource)
		}
	}
	t.Logf("%d requests", tried)
}

// try sends a probe as an actor.
func (w *cells) try(t *testing.T, row rbac.Row, p probe, a cast) {
	t.Helper()
	user, want := a.name, a.holds(row)
	if p.inside && rbac.IsSiteRole(a.relations0()) {
		user, want = a.name+"-inside", a.holds(row, rbac.RelationMember)
	}
	want = want || p.own
	v := maps.Clone(w.standing)
	if p.fresh != nil {
		maps.Copy(v, p.fresh(w, user))
	}
	v["n"] = w.next()
	what := func(status int, body string) string {
		return fmt.Sprintf("%s: %s %s (%s %s): got %d %.200s", user, p.method, p.path, row.Action, row.Resource, status, strings.TrimSpace(body))
	}
	status, body := w.send(user, p.method, v.fill(p.path), v.fill(p.body))
	if p.marker != "" {
		if shown := status < 300 && strings.Contains(body, v.fill(p.marker)); shown != want || status >= 500 {
			t.Errorf("%s, want %s in it: %t", what(status, body), v.fill(p.marker), want)
		}
		return
	}
	switch {
	case want && (denies(status) || status == 400 || status >= 500 && status != p.unavailable):
		t.Errorf("%s, want it allowed", what(status, body))
	case !want && !denies(status) && (status != p.hidden || p.hidden == 0):
		t.Errorf("%s, want it refused", what(status, body))
	case want || p.named:
		return
	}
	// A refusal must not reveal whether the object exists to those who cannot read it.
	readable := slices.ContainsFunc(rbac.Rows(), func(r rbac.Row) bool {
		return r.Power == (rbac.Power{Action: rbac.Read, Resource: cmp.Or(p.of, row.Resource)}) && a.holds(r)
	})
	if !readable {
		nothing := v.elsewhere()
		if s, b := w.send(user, p.method, nothing.fill(p.path), nothing.fill(p.body)); s != status || b != body {
			t.Errorf("%s, and for an object that does not exist %d %s", what(status, body), s, b)
		}
	}
}

// ownerless are the kinds whose objects belong to no organization.
var ownerless = []rbac.Resource{rbac.User, rbac.APIKey, rbac.SSHKey, rbac.ExternalAuth, rbac.UserSecret, rbac.UserSSHKey, rbac.UserDevice, rbac.TemplateConsent, rbac.Notification, rbac.OrganizationInvitation, rbac.Deployment, rbac.Mesh}

// authcheck asks for all cells.
func (w *cells) authcheck(t *testing.T) {
	rows := rbac.Rows()
	for _, a := range w.actors {
		for page := range slices.Chunk(rows, 30) {
			req := sdk.AuthorizationRequest{Checks: sdk.Map[sdk.AuthorizationCheck]{}}
			want := map[string]bool{}
			for _, row := range page {
				o := sdk.AuthorizationObject{ResourceType: strings.ToLower(strings.ReplaceAll(string(row.Resource), " ", "_"))}
				action := string(row.Action)
				if row.Resource == rbac.User && row.Action == rbac.Update {
					action = "update_personal" // clients call Manage "update"
				}
				if !slices.Contains(ownerless, row.Resource) {
					o.OrganizationID = w.east.String()
				}
				listed := row
				shared := slices.Contains(row.Relations, rbac.RelationUse) || slices.Contains(row.Relations, rbac.RelationAdmin)
				switch {
				case shared && row.Resource == rbac.File: // authcheck does not know which template is made from a file
					listed.Relations = slices.DeleteFunc(slices.Clone(row.Relations), func(r string) bool { return r == rbac.RelationAdmin })
				case shared && slices.Contains([]rbac.Resource{rbac.Template, rbac.TemplateVersion}, row.Resource):
					o.ResourceID = w.standing["tpl"]
					listed.Relations = slices.DeleteFunc(slices.Clone(row.Relations), func(r string) bool { return r == rbac.RelationSelf })
				case shared:
					o.ResourceID = w.standing["ws"]
				}
				if o.ResourceID == "" && slices.Contains(row.Relations, rbac.RelationSelf) {
					o.OwnerID = w.standing["selfid"]
				}
				key := fmt.Sprintf("%s %s", row.Action, row.Resource)
				req.Checks[key], want[key] = sdk.AuthorizationCheck{Action: action, Object: o}, a.holds(listed)
			}
			text, err := json.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			status, body := w.send(a.name, "POST", "/api/v2/authcheck", string(text))
			var got sdk.AuthorizationResponse
			if err := json.Unmarshal([]byte(body), &got); status != 200 || err != nil {
				t.Fatalf("authcheck: %d %s", status, body)
			}
			for key := range want {
				if got[key] != want[key] {
					t.Errorf("%s: authcheck %s: got %t, want %t", a.name, key, got[key], want[key])
				}
			}
		}
	}
}
