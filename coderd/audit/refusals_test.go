package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// refusedRows returns the refused attempts that an auditor finds.
func refusedRows(t *testing.T, s *coderdtest.Server, q string) []sdk.ConnectionLog {
	t.Helper()
	got, err := s.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: strings.TrimSpace("status:refused " + q)})
	if err != nil || got.Count != len(got.ConnectionLogs) {
		t.Fatalf("%+v, %v", got, err)
	}
	return got.ConnectionLogs
}

// TestRefusedConnections checks that what a user tries in vain within a minute is one row with a count, whichever servers
// were asked, and by id as by name.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	_, agent := s.RunningRow("ann", "dev")
	gone, goneAgent := s.RunningRow("ann", "gone")
	s.Exec("UPDATE workspaces SET deleted_at = now() WHERE id = $1", gone)
	clock := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	one, two := audit.NewConnections(s.DB, s.Log), audit.NewConnections(s.DB, s.Log)
	for _, c := range []*audit.Connections{one, two} {
		c.SetClock(func() time.Time { return clock })
	}
	store := func() {
		t.Helper()
		if err := errors.Join(one.StoreRefusals(t.Context()), two.StoreRefusals(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	bob, none := s.User("bob"), rbac.NotFound(rbac.Agent)
	byID := audit.Connection{Type: audit.SSH, Mesh: true, User: bob, Agent: agent, Addr: netip.MustParseAddr("192.0.2.7")}
	byName := audit.Connection{Type: audit.SSH, User: bob, Name: "Ann/DEV.main"}
	for range 3 {
		if err := one.Refused(byID, none); !errors.Is(err, none) {
			t.Fatal(err)
		}
	}
	store()
	if rows := refusedRows(t, s, "username:bob"); len(rows) != 1 || rows[0].Refused != 3 || rows[0].WorkspaceName != "dev" || rows[0].AgentName != "main" ||
		rows[0].IP != "192.0.2.7" || rows[0].DisconnectReason != "no access" || rows[0].DisconnectTime == nil || rows[0].Path != "" || rows[0].Type != "ssh" ||
		rows[0].SSHInfo == nil || rows[0].SSHInfo.ExitCode != nil {
		t.Errorf("by id: %+v", rows)
	}
	_ = one.Refused(byID, none)
	_ = two.Refused(byName, none)
	_ = two.Refused(audit.Connection{Type: audit.SSH, User: bob, Name: "ann/dev"}, none)
	store()
	clock = clock.Add(time.Minute)
	store()
	if rows := refusedRows(t, s, ""); len(rows) != 1 || rows[0].Refused != 6 {
		t.Errorf("also by name, at another server: %+v", rows)
	}
	_ = one.Refused(byID, fault.New(fault.Forbidden, "In the browser only."))
	_ = one.Refused(audit.Connection{Type: audit.App, User: bob, Agent: agent, Target: "code", UserAgent: "Firefox"}, none)
	recordsNothing(t, one, bob, agent, goneAgent)
	store()
	rows := refusedRows(t, s, "connected_after:2030-01-02T03:05:00Z")
	if len(rows) != 2 {
		t.Fatalf("in the next minute: %+v", rows)
	}
	for _, row := range rows {
		if row.Type == "ssh" && row.DisconnectReason != "In the browser only." ||
			row.Type == "workspace_app" && (row.WebInfo == nil || row.WebInfo.StatusCode != 404 || row.WebInfo.UserAgent != "Firefox" || row.SlugOrPort != "code") {
			t.Errorf("row: %+v", row)
		}
	}
	if rows := refusedRows(t, s, "workspace_owner:ann type:ssh"); len(rows) != 2 {
		t.Errorf("of ssh: %+v", rows)
	}
	for _, q := range []string{"status:completed", "status:ongoing"} {
		if got, err := s.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: q}); err != nil || len(got.ConnectionLogs) != 0 {
			t.Errorf("%s: %+v, %v", q, got, err)
		}
	}
	if _, err := s.As("bob").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:refused"}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("bob reads it: %v", err)
	}
}

// recordsNothing tries what leaves no row: there is no such thing, no user, or another reason.
func recordsNothing(t *testing.T, c *audit.Connections, bob, agent, goneAgent uuid.UUID) {
	t.Helper()
	none := rbac.NotFound(rbac.Agent)
	for name, what := range map[string]audit.Connection{
		"a workspace that does not exist": {Type: audit.SSH, User: bob, Name: "ann/none"}, "no name": {Type: audit.SSH, User: bob},
		"an agent that does not exist": {Type: audit.SSH, User: bob, Agent: uuid.New()}, "a deleted workspace": {Type: audit.SSH, User: bob, Agent: goneAgent},
		"a deleted workspace's name": {Type: audit.SSH, User: bob, Name: "ann/gone"}, "no user": {Type: audit.App, Agent: agent},
		"bob has no dev": {Type: audit.SSH, User: bob, Name: "dev"}, "me": {Type: audit.SSH, User: bob, Name: "me/dev"},
		"not text": {Type: audit.SSH, User: bob, Name: "ann/\x00\xff" + strings.Repeat("x", 5000)},
	} {
		if err := c.Refused(what, none); !errors.Is(err, none) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, other := range []error{nil, errors.New("away"), fault.New(fault.Conflict, "stopped"), fault.New(fault.Unavailable, "soon"), fault.New(fault.Unauthenticated, "ended")} {
		if err := c.Refused(audit.Connection{Type: audit.SSH, User: bob, Agent: agent}, other); err != other { //nolint:errorlint // the very same
			t.Errorf("%v became %v", other, err)
		}
	}
}

// TestRefusalsAreBounded checks that an attacker who tries many things neither fills the database nor goes unseen, and does
// not keep others' attempts from the log.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	_, agent := s.RunningRow("ann", "dev")
	clock := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var log strings.Builder
	c := audit.NewConnections(s.DB, slog.New(slog.NewTextHandler(&log, nil)))
	c.SetClock(func() time.Time { return clock })
	eve, none := s.User("bob"), rbac.NotFound(rbac.Agent)
	for i := range 10_000 {
		_ = c.Refused(audit.Connection{Type: audit.SSH, User: eve, Name: fmt.Sprint("ann/", i)}, none)
	}
	_ = c.Refused(audit.Connection{Type: audit.SSH, User: eve, Agent: agent}, none)
	_ = c.Refused(audit.Connection{Type: audit.SSH, User: s.User("tom"), Agent: agent}, none)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Run(ctx) // stores what is left
	if rows := refusedRows(t, s, ""); len(rows) != 1 || rows[0].Username != "tom" {
		t.Errorf("rows: %+v", rows)
	}
	if said := log.String(); !strings.Contains(said, "tries too many") || !strings.Contains(said, "rows=9937") || !strings.Contains(said, eve.String()) {
		t.Errorf("the server's log: %s", said)
	}
	clock = clock.Add(time.Minute)
	_ = c.Refused(audit.Connection{Type: audit.SSH, User: eve, Agent: agent}, none)
	if err := c.StoreRefusals(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := refusedRows(t, s, "username:bob"); len(rows) != 1 {
		t.Errorf("in the next minute: %+v", rows)
	}
}
