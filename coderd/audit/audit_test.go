package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func find(t *testing.T, s *coderdtest.Server, q string) []sdk.AuditLog {
	t.Helper()
	got, err := s.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: q})
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	if got.Count != len(got.AuditLogs) {
		t.Errorf("%s: count is %d, got %d rows", q, got.Count, len(got.AuditLogs))
	}
	return got.AuditLogs
}

func one(t *testing.T, s *coderdtest.Server, q string) sdk.AuditLog {
	t.Helper()
	rows := find(t, s, q)
	if len(rows) != 1 {
		t.Fatalf("%s: got %d rows, want 1: %+v", q, len(rows), rows)
	}
	return rows[0]
}

func TestChangeOfTemplate(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("docker", nil)
	name, ttl := "podman", int64(3_600_000)
	if _, err := s.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{Name: &name, DefaultTTLMillis: &ttl}); err != nil {
		t.Fatal(err)
	}
	got := one(t, s, "resource_type:template action:write")
	want := sdk.Map[sdk.AuditDiffField]{"name": {Old: "docker", New: "podman"}, "default_ttl_seconds": {Old: 0.0, New: 3600.0}}
	if len(got.Diff) != len(want) || got.Diff["name"] != want["name"] || got.Diff["default_ttl_seconds"] != want["default_ttl_seconds"] {
		t.Errorf("difference: got %+v, want %+v", got.Diff, want)
	}
	if got.User == nil || got.User.Username != "tom" || got.ResourceID != template.ID || got.ResourceTarget != "docker" || got.StatusCode != 200 {
		t.Errorf("row: %+v", got)
	}
	if got.IP != "127.0.0.1" || !strings.HasPrefix(got.UserAgent, "coder/") || got.RequestID == uuid.Nil || got.Organization == nil || got.Organization.ID != s.Org {
		t.Errorf("from: %+v", got)
	}
	if got.Description != "tom changed default TTL and name of template docker" {
		t.Errorf("description: %q", got.Description)
	}
	if created := one(t, s, "resource_type:template action:create"); created.StatusCode != 201 || created.Diff["name"].New != "docker" {
		t.Errorf("creation: %+v", created)
	}
	// The name is taken: nothing changes, and nothing is recorded.
	other := s.Template("other", nil)
	if _, err := s.As("tom").UpdateTemplate(t.Context(), other.ID, sdk.UpdateTemplateRequest{Name: &name}); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("rename to a name that is taken: %v", err)
	}
	one(t, s, "resource_type:template action:write")
}

// A row is written with its change or not at all.
func TestRowIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	failed := errors.New("failed")
	entry := audit.Entry{Action: audit.Write, Kind: audit.Template, Name: "x"}
	err := s.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error {
		if err := audit.Record(t.Context(), q, entry); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if rows := find(t, s, ""); len(rows) != 0 {
		t.Errorf("a transaction that rolled back left %+v", rows)
	}
	if err := audit.Record(t.Context(), s.DB.Queries, entry); err != nil {
		t.Fatal(err)
	}
	if got := one(t, s, ""); got.Actor != audit.ByServer || got.User != nil || got.RequestID != uuid.Nil {
		t.Errorf("what the server does without a request: %+v", got)
	}
	if _, err := s.DB.Pool.Exec(t.Context(), "UPDATE audit_logs SET actor = 'mallory'"); err == nil {
		t.Error("a row could be changed")
	}
	if err := audit.Record(t.Context(), s.DB.Queries, audit.Entry{Name: "x"}); err == nil {
		t.Error("a row without an action was written")
	}
}

func TestSignIns(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	client := s.With("")
	const password = "correct horse battery"
	if _, err := client.CreateFirstUser(t.Context(), sdk.CreateFirstUserRequest{Email: "admin@example.com", Username: "admin", Password: password, SetupCode: coderdtest.SetupCode.Reveal()}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Login(t.Context(), sdk.LoginRequest{Email: "admin@example.com", Password: "Wrong-password-7"}); fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatal(err)
	}
	if _, err := client.Login(t.Context(), sdk.LoginRequest{Email: "ghost@example.com", Password: "Wrong-password-7"}); fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatal(err)
	}
	session, err := client.Login(t.Context(), sdk.LoginRequest{Email: "admin@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.With(secret.Token(session.SessionToken)).Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range find(t, s, "") {
		got = append(got, row.Description+" "+http.StatusText(row.StatusCode))
		if data, _ := json.Marshal(row); bytes.Contains(data, []byte(password)) || bytes.Contains(data, []byte("Wrong-password-7")) || bytes.Contains(data, []byte("argon2")) {
			t.Errorf("the row holds a secret: %s", data)
		}
	}
	slices.Reverse(got)
	want := []string{
		"admin created user admin Created", "admin could not sign in Unauthorized", "ghost@example.com could not sign in Unauthorized",
		"admin signed in Created", "admin signed out OK",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if ghost := one(t, s, "resource_target:ghost@example.com"); ghost.User != nil || ghost.ResourceID != uuid.Nil {
		t.Errorf("a sign-in as a user who does not exist: %+v", ghost)
	}
	if failed := find(t, s, "username:admin action:login"); len(failed) != 2 {
		t.Errorf("sign-ins of admin: %+v", failed)
	}
}

func TestSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	token, err := s.As("ann").CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{TokenName: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	got := one(t, s, "resource_type:api_key action:create")
	if field := got.Diff["secret_hash"]; !field.Secret || field.Old != "" || field.New != "" {
		t.Errorf("the token's hash: %+v", got.Diff)
	}
	_, half, _ := strings.Cut(token.Key, "-")
	if data, _ := json.Marshal(got); bytes.Contains(data, []byte(half)) {
		t.Errorf("the row holds the token: %s", data)
	}
	if _, err := s.As("ann").RegenerateGitSSHKey(t.Context(), sdk.Me); err != nil {
		t.Fatal(err)
	}
	if diff := one(t, s, "resource_type:git_ssh_key").Diff; !diff["sealed"].Secret || diff["public_key"].Secret {
		t.Errorf("the key: %+v", diff)
	}
}

func TestBuilds(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("docker", nil)
	ws, _ := s.Running("ann", "dev", template.ID)
	if got := one(t, s, "resource_type:workspace action:create"); got.ResourceLink != "/@ann/dev" || got.User.Username != "ann" {
		t.Errorf("creation: %+v", got)
	}
	if got := one(t, s, "resource_type:workspace_build action:start"); got.Description != "Workspace ann/dev started" || got.Actor != audit.ByServer {
		t.Errorf("result: %+v", got)
	}
	if _, err := s.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStop, Reason: sdk.ReasonCLI}); err != nil {
		t.Fatal(err)
	}
	stop := one(t, s, "resource_type:workspace action:stop build_reason:cli")
	if stop.Description != "ann stopped workspace dev" || !strings.Contains(string(stop.AdditionalFields), `"build_number":2`) {
		t.Errorf("stop: %s %s", stop.Description, stop.AdditionalFields)
	}
	if err := s.As("ann").UpdateAutostart(t.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: new("CRON_TZ=UTC 0 9 * * 1-5")}); err != nil {
		t.Fatal(err)
	}
	if diff := one(t, s, "resource_type:workspace action:write").Diff; diff["autostart_schedule"].Old != nil || diff["autostart_schedule"].New != "CRON_TZ=UTC 0 9 * * 1-5" {
		t.Errorf("schedule: %+v", diff)
	}
}

// TestWhoReads checks that members and other administrators do not read the logs, that auditors do, and that an organization's auditor
// reads those of that organization only.
func TestWhoReads(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	s.Template("docker", nil)
	s.Exec("UPDATE users SET roles = '{auditor}' WHERE id = $1", s.User("audrey"))
	s.Exec("UPDATE organization_members SET roles = '{organization-auditor}' WHERE user_id = $1", s.User("otto"))
	elsewhere := uuid.New()
	s.Exec("INSERT INTO organizations (id, name) VALUES ($1, 'elsewhere')", elsewhere)
	for _, org := range []uuid.UUID{s.Org, elsewhere} {
		if err := audit.Record(t.Context(), s.DB.Queries, audit.Entry{Action: audit.Write, Kind: audit.Template, Name: "x", Organization: org}); err != nil {
			t.Fatal(err)
		}
		s.Exec(`INSERT INTO connection_logs (id, connect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type)
			VALUES (gen_random_uuid(), now(), $1, gen_random_uuid(), gen_random_uuid(), 'dev', gen_random_uuid(), 'main', 'ssh')`, org)
	}
	if err := audit.Record(t.Context(), s.DB.Queries, audit.Entry{Action: audit.Write, Kind: audit.User, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"ann", "tom", ""} {
		want := fault.Forbidden
		if user == "" {
			want = fault.Unauthenticated
		}
		if got, err := s.As(user).AuditLogs(t.Context(), sdk.LogQuery{}); fault.CodeOf(err) != want {
			t.Errorf("%s reads the audit log: %+v, %v", user, got, err)
		}
		if got, err := s.As(user).ConnectionLogs(t.Context(), sdk.LogQuery{}); fault.CodeOf(err) != want {
			t.Errorf("%s reads the connection log: %+v, %v", user, got, err)
		}
		var out bytes.Buffer
		if err := s.As(user).ExportAuditLogs(t.Context(), &out, sdk.LogQuery{}); fault.CodeOf(err) != want || out.Len() > 0 {
			t.Errorf("%s exports the audit log: %s, %v", user, out.String(), err)
		}
		if err := s.As(user).ExportConnectionLogs(t.Context(), &out, sdk.LogQuery{}); fault.CodeOf(err) != want || out.Len() > 0 {
			t.Errorf("%s exports the connection log: %s, %v", user, out.String(), err)
		}
	}
	for user, want := range map[string][3]bool{"olga": {true, true, true}, "audrey": {true, true, true}, "otto": {true, false, false}} {
		logs, err := s.As(user).AuditLogs(t.Context(), sdk.LogQuery{})
		if err != nil {
			t.Errorf("%s: %v", user, err)
		}
		var got [3]bool
		for _, row := range logs.AuditLogs {
			got[0] = got[0] || row.OrganizationID == s.Org
			got[1] = got[1] || row.OrganizationID == elsewhere
			got[2] = got[2] || row.OrganizationID == uuid.Nil
		}
		if got != want {
			t.Errorf("%s reads rows of the organization, another and the deployment: %v, want %v", user, got, want)
		}
		connections, err := s.As(user).ConnectionLogs(t.Context(), sdk.LogQuery{})
		if n := map[bool]int{true: 2, false: 1}[want[1]]; err != nil || len(connections.ConnectionLogs) != n || connections.Count != n {
			t.Errorf("%s reads %d connections of %d, %v; want %d", user, len(connections.ConnectionLogs), connections.Count, err, n)
		}
		if other, err := s.As(user).AuditLogs(t.Context(), sdk.LogQuery{Q: "organization:elsewhere"}); err != nil || (len(other.AuditLogs) > 0) != want[1] {
			t.Errorf("%s searches in another organization: %+v, %v", user, other, err)
		}
	}
}

// What a user was forbidden to do is recorded too.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("docker", nil)
	if err := s.As("ann").DeleteTemplate(t.Context(), template.ID); fault.CodeOf(err) != fault.Forbidden {
		t.Fatal(err)
	}
	got := one(t, s, "username:ann")
	if got.StatusCode != http.StatusForbidden || got.Action != "delete" || got.ResourceType != "template" || got.ResourceID != template.ID || len(got.Diff) != 0 {
		t.Errorf("row: %+v", got)
	}
	if _, err := s.As("ann").Template(t.Context(), template.ID); err != nil {
		t.Errorf("the template: %v", err)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("docker", nil)
	s.Running("ann", "dev", template.ID)
	all := find(t, s, "")
	first := all[len(all)-1]
	today := time.Now().UTC()
	for q, want := range map[string]bool{
		"resource_id:" + template.ID.String():                       true,
		"resource_id:" + uuid.NewString():                           false,
		"docker":                                                    true,
		"resource_target:DOCKER":                                    true,
		"email:ann@example.com":                                     true,
		"email:ann@example.com username:tom":                        false,
		"username:nobody":                                           false,
		"organization:default":                                      true,
		"organization:elsewhere":                                    false,
		"request_id:" + first.RequestID.String():                    true,
		"date_from:" + today.AddDate(0, 0, -1).Format("2006-01-02"): true,
		"date_from:" + today.AddDate(0, 0, 2).Format("2006-01-02"):  false,
		"date_to:" + today.Format("2006-01-02"):                     true,
		"date_to:" + today.AddDate(0, 0, -2).Format("2006-01-02"):   false,
		"date_to:" + today.Add(-time.Hour).Format(time.RFC3339):     false,
		"build_reason:initiator":                                    true,
		"build_reason:autostop":                                     false,
	} {
		if got := find(t, s, q); (len(got) > 0) != want {
			t.Errorf("%s: got %d rows", q, len(got))
		}
	}
	for _, q := range []string{"colour:red", "resource_id:x", "date_from:yesterday", "request_id:1", "action:a action:b"} {
		if _, err := s.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: q}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", q, err)
		}
	}
	var paged []uuid.UUID
	for offset := range all {
		got, err := s.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Limit: 1, Offset: offset})
		if err != nil || len(got.AuditLogs) != 1 || got.Count != len(all) {
			t.Fatalf("page %d: %+v, %v", offset, got, err)
		}
		paged = append(paged, got.AuditLogs[0].ID)
	}
	if !slices.EqualFunc(paged, all, func(id uuid.UUID, row sdk.AuditLog) bool { return id == row.ID }) {
		t.Errorf("the pages differ from the list")
	}
}

// An export is longer than what it holds in memory, and has every row once.
func TestExport(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	s.User("olga")
	const rows = 1201
	s.Exec(`INSERT INTO audit_logs (id, actor, action, resource_type, resource_target, status_code, created_at)
		SELECT gen_random_uuid(), 'coder', 'write', 'template', 't' || i, 200, now() - (i / 3) * interval '1 second' FROM generate_series(1, $1::int) i`, rows)
	var out bytes.Buffer
	if err := s.As("olga").ExportAuditLogs(t.Context(), &out, sdk.LogQuery{Q: "action:write"}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var last time.Time
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var row sdk.AuditLog
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if !last.IsZero() && row.Time.After(last) {
			t.Fatalf("%s is after %s", row.Time, last)
		}
		seen[row.ResourceTarget], last = true, row.Time
	}
	if len(seen) != rows {
		t.Errorf("got %d rows, want %d", len(seen), rows)
	}
	out.Reset()
	if err := s.As("olga").ExportAuditLogs(t.Context(), &out, sdk.LogQuery{Q: "username:ghost"}); err != nil || out.Len() > 0 {
		t.Errorf("nothing: %q, %v", out.String(), err)
	}
}

// A stream has what is written after it began, by whichever process, once.
func TestStream(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	s := coderdtest.Start(t, func(o *coderd.Options) {
		old := audit.Entry{Action: audit.Write, Kind: audit.Template, Name: "before"}
		if err := audit.Record(t.Context(), o.DB.Queries, old); err != nil {
			t.Fatal(err)
		}
		o.AuditStream = write
	})
	t.Cleanup(func() { read.Close() })
	for _, name := range []string{"one", "two"} {
		if err := audit.Record(t.Context(), s.DB.Queries, audit.Entry{Action: audit.Write, Kind: audit.Template, Name: name, By: audit.ByOperator}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PubSub.Publish(t.Context(), "audit", ""); err != nil { // as after a lost connection
		t.Fatal(err)
	}
	if err := audit.Record(t.Context(), s.DB.Queries, audit.Entry{Action: audit.Delete, Kind: audit.Template, Name: "three"}); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(read)
	for _, want := range []string{"server operator changed template one", "server operator changed template two", "System deleted template three"} {
		var row sdk.AuditLog
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &row) != nil || row.Description != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
}

// TestLostServer checks that connections which a killed server proxied end, and that those of a living one stay.
func TestLostServer(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	agent := s.AgentRow(s.BuildRow(s.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded))
	ctx, cancel := context.WithCancel(t.Context())
	living, stored := audit.NewConnections(s.DB, s.Log), make(chan struct{})
	go func() { defer close(stored); living.Run(ctx) }()
	lost := uuid.New()
	living.Begin(audit.Connection{Type: audit.Terminal, Agent: agent, User: s.User("ann")})
	s.Exec(`INSERT INTO connection_logs (id, connect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, path)
		VALUES ($1, now() - interval '2 hours', $2, $3, gen_random_uuid(), 'dev', $4, 'main', 'workspace_app', 'proxied')`, lost, s.Org, s.User("ann"), agent)
	open := func() []sdk.ConnectionLog {
		got, err := s.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:ongoing"})
		if err != nil {
			t.Fatal(err)
		}
		return got.ConnectionLogs
	}
	testwait.Until(t, "both rows", func() error { return testwait.Len(open(), 2) })
	s.Exec("UPDATE connection_logs SET seen_at = now() - interval '1 hour'")
	if err := living.See(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := open(); len(rows) != 1 || rows[0].ID == lost {
		t.Errorf("open: %+v", rows)
	}
	got, err := s.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:completed"})
	if err != nil || len(got.ConnectionLogs) != 1 || got.ConnectionLogs[0].DisconnectReason != "the server was lost" || time.Since(*got.ConnectionLogs[0].DisconnectTime) < 50*time.Minute {
		t.Errorf("lost: %+v, %v", got.ConnectionLogs, err)
	}
	cancel()
	<-stored
}

// TestOffsets checks that a page may skip many rows, but not so many that they cost PostgreSQL seconds.
func TestOffsets(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	s.Template("docker", nil)
	all := find(t, s, "")
	got, err := s.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Offset: 100_000, Limit: 1})
	if err != nil || len(got.AuditLogs) != 0 || got.Count != len(all) {
		t.Errorf("far beyond the end: %+v, %v; want no row of %d", got, err, len(all))
	}
	for _, offset := range []int{100_001, 1 << 30} {
		if _, err := s.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Offset: offset}); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error()+fault.As(err).Detail, "date_to") {
			t.Errorf("audit log from %d: %v, want a refusal that names date_to", offset, err)
		}
		if _, err := s.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Offset: offset}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("connection log from %d: %v, want a refusal", offset, err)
		}
	}
}
