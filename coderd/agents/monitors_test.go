package agents_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// monitored is a running workspace of ann's, dev, whose agent monitors its memory and two volumes.
type monitored struct {
	*world
	build   coderdtest.Build
	agent   uuid.UUID
	service *agents.Service
}

func newMonitored(t *testing.T) *monitored {
	t.Helper()
	w := newWorld(t)
	w.opts.Notifications = notifications.Config{}.Recorder()
	m := &monitored{world: w, agent: uuid.New(), service: agents.New(w.opts)}
	m.build = w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
	m.start(m.build, 90)
	return m
}

// start stores a build whose volumes have a threshold.
func (m *monitored) start(b coderdtest.Build, threshold int32) {
	m.T.Helper()
	m.store(b, true, resource(m.agent, func(a *provisionerpb.Agent) {
		a.Monitors = []*provisionerpb.AgentMonitor{
			{ThresholdPercent: 80}, {Volume: "/", ThresholdPercent: threshold}, {Volume: "/home/dev", ThresholdPercent: threshold},
			{Volume: "/", ThresholdPercent: 1}, {Volume: "/above", ThresholdPercent: 101}, {Volume: "/below", ThresholdPercent: -1},
		}
	}))
}

// later lets the given time pass for the agent's monitors.
func (m *monitored) later(interval string) {
	m.T.Helper()
	m.Exec(`UPDATE workspace_agents a SET monitors = (SELECT jsonb_agg(m
		|| CASE WHEN m ? 'changed_at' THEN jsonb_build_object('changed_at', (m ->> 'changed_at')::timestamptz - $2::interval) ELSE '{}' END
		|| CASE WHEN m ? 'notified_at' THEN jsonb_build_object('notified_at', (m ->> 'notified_at')::timestamptz - $2::interval) ELSE '{}' END)
		FROM jsonb_array_elements(a.monitors) m) WHERE id = $1 OR monitors <> '[]'`, m.agent, interval)
}

func level(volume string, over bool, percent uint32) *agentpb.MonitorLevel {
	return &agentpb.MonitorLevel{Volume: volume, Over: over, Percent: percent}
}

func report(t *testing.T, c agentpbconnect.AgentServiceClient, levels ...*agentpb.MonitorLevel) []*agentpb.MonitorLevel {
	t.Helper()
	answer, err := c.Monitors(t.Context(), connect.NewRequest(&agentpb.MonitorsRequest{Levels: levels}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg.GetLevels()
}

// inbox returns the titles and first lines of a user's notifications, sorted: those of one moment have no order.
func (m *monitored) inbox(user string) (titles []string) {
	m.T.Helper()
	if err := m.Server.Notifications.Deliver(m.T.Context()); err != nil {
		m.T.Fatal(err)
	}
	all, err := m.As(user).Inbox(m.T.Context(), "format=plaintext")
	if err != nil {
		m.T.Fatal(err)
	}
	for _, n := range all.Notifications {
		titles = append(titles, n.Title+": "+strings.SplitN(n.Content, "\n", 2)[0])
	}
	slices.Sort(titles)
	return titles
}

func (m *monitored) expectInbox(want ...string) {
	m.T.Helper()
	if diff := cmp.Diff(want, m.inbox("ann")); diff != "" {
		m.T.Errorf("ann's inbox (-want +got):\n%s", diff)
	}
}

func (m *monitored) shown() []sdk.AgentMonitor {
	m.T.Helper()
	a, err := m.As("ann").Agent(m.T.Context(), m.agent)
	if err != nil {
		m.T.Fatal(err)
	}
	return a.Monitors
}

const (
	lowMemory = `Workspace "dev" is low on memory: Your workspace dev uses 85 % of its memory, and passed the threshold of 80 %.`
	lowDisk   = `Workspace "dev" is low on disk space: In your workspace dev, /home/dev is 93 % full (threshold 90 %).`
)

// TestMonitors reports that thresholds are passed to two servers: the owner is notified once, of all volumes together, and the API shows
// the state.
func TestMonitors(t *testing.T) {
	t.Parallel()
	m := newMonitored(t)
	one, two := serve(t, m.service).client(m.agent), serve(t, agents.New(m.opts)).client(m.agent)
	manifest, err := one.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*agentpb.Monitor{{ThresholdPercent: 80}, {Volume: "/", ThresholdPercent: 90}, {Volume: "/home/dev", ThresholdPercent: 90}},
		manifest.Msg.GetMonitors(), protocmp.Transform()); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	m.expectInbox()
	all := []*agentpb.MonitorLevel{level("", true, 85), level("/", false, 20), level("/home/dev", true, 93)}
	for _, c := range []agentpbconnect.AgentServiceClient{one, two, one} { // the same again, as after a lost answer
		if diff := cmp.Diff([]bool{true, false, true}, overOf(report(t, c, all...))); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	}
	m.expectInbox(lowDisk, lowMemory)
	got := m.shown()
	if len(got) != 3 || got[0].Resource != sdk.MonitorMemory || got[0].Percent != 85 || got[0].Threshold != 80 || !got[0].Over || got[0].ChangedAt == nil ||
		got[1].Over || got[2].Path != "/home/dev" || got[2].Resource != sdk.MonitorVolume || !got[2].Over {
		t.Errorf("the API shows %+v", got)
	}
	again, err := two.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil || !again.Msg.GetMonitors()[0].GetOver() {
		t.Errorf("the next manifest: %v, %v", again, err)
	}

	// It falls, and passes the threshold again: within the hour the page shows that, and the owner is not notified again.
	m.later("20 minutes")
	report(t, two, level("/home/dev", false, 10))
	m.later("20 minutes")
	report(t, one, level("/home/dev", true, 99))
	m.expectInbox(lowDisk, lowMemory)
	if got := m.shown()[2]; !got.Over || got.Percent != 99 {
		t.Errorf("the API shows %+v", got)
	}
	// After the hour both volumes pass theirs: one notification.
	m.later("2 hours")
	report(t, one, level("/home/dev", false, 10))
	m.later("1 minute")
	report(t, one, level("/home/dev", true, 93), level("/", true, 95))
	m.expectInbox(`Workspace "dev" is low on disk space: In your workspace dev, / is 95 % full (threshold 90 %), /home/dev is 93 % full (threshold 90 %).`, lowDisk, lowMemory)
}

func overOf(levels []*agentpb.MonitorLevel) (over []bool) {
	for _, l := range levels {
		over = append(over, l.GetOver())
	}
	return over
}

// TestMonitorsOfBuilds checks what builds keep: a repeated report of the build all states, the next build nothing but when the owner was
// notified, even if its agent is another one.
func TestMonitorsOfBuilds(t *testing.T) {
	t.Parallel()
	m := newMonitored(t)
	sv := serve(t, m.service)
	report(t, sv.client(m.agent), level("/home/dev", true, 93))
	m.start(m.build, 90)
	if !m.shown()[2].Over {
		t.Error("a second report of the build reset the state")
	}
	m.start(m.build, 95) // another threshold
	if m.shown()[2].Over {
		t.Error("a new threshold kept the state")
	}
	m.expectInbox(lowDisk)
	for range 2 { // the same agent, then a new one
		m.later("1 minute")
		m.build = m.BuildRow(m.build.Workspace, sdk.TransitionStart, sdk.JobSucceeded)
		m.start(m.build, 90)
		if got := m.shown()[2]; got.Over || got.ChangedAt != nil {
			t.Errorf("state after the next build: %+v", got)
		}
		report(t, sv.client(m.agent), level("/home/dev", true, 93))
		m.expectInbox(lowDisk) // restarts do not repeat it
		m.agent = uuid.New()
	}
	m.later("1 hour")
	m.build = m.BuildRow(m.build.Workspace, sdk.TransitionStart, sdk.JobSucceeded)
	m.start(m.build, 90)
	report(t, sv.client(m.agent), level("/home/dev", true, 93))
	m.expectInbox(lowDisk, lowDisk)
}

// TestHostileMonitors checks that an agent reports about itself and its own monitors only, and that neither the inbox nor the database
// follows one that reports without end.
func TestHostileMonitors(t *testing.T) {
	t.Parallel()
	m := newMonitored(t)
	sv := serve(t, m.service)
	c := sv.client(m.agent)
	row := func() (version string) {
		t.Helper()
		if err := m.DB.Pool.QueryRow(t.Context(), "SELECT xmin::text || ' ' || ctid::text FROM workspace_agents WHERE id = $1", m.agent).Scan(&version); err != nil {
			t.Fatal(err)
		}
		return version
	}
	untouched := row()
	report(t, c, level("/etc", true, 99), level("/above", true, 99), level("/", false, 4_000_000_000))
	if row() != untouched {
		t.Error("a report of unknown volumes was written")
	}
	if got := report(t, c, level("", true, 4_000_000_000)); got[0].GetPercent() != 100 {
		t.Errorf("percent %d, want at most 100", got[0].GetPercent())
	}
	after := row()
	for range 50 {
		if got := report(t, c, level("", false, 0)); !got[0].GetOver() {
			t.Fatal("the state changed twice at once")
		}
		report(t, c, level("", true, 99))
	}
	if row() != after {
		t.Error("reports without end were written")
	}
	for range 5 { // as fast as the server lets it
		m.later("11 seconds")
		report(t, c, level("", false, 0))
		m.later("11 seconds")
		report(t, c, level("", true, 99))
	}
	if got := m.inbox("ann"); len(got) != 1 {
		t.Errorf("ann's inbox: %q", got)
	}
	many := make([]*agentpb.MonitorLevel, 18)
	if _, err := c.Monitors(t.Context(), connect.NewRequest(&agentpb.MonitorsRequest{Levels: many})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("too many: %v", err)
	}
	// Bob's agent has no monitors, and none of ann's.
	thief := uuid.New()
	m.store(m.BuildRow(m.WorkspaceRow("bob", "copy"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(thief))
	if got := report(t, sv.client(thief), level("", true, 99), level("/", true, 99)); len(got) != 0 {
		t.Errorf("an agent without monitors has %v", got)
	}
	if got := m.inbox("bob"); len(got) != 0 {
		t.Errorf("bob's inbox: %q", got)
	}
	// An agent that was revoked says nothing any more.
	m.revoke(m.build.Workspace)
	if _, err := c.Monitors(t.Context(), connect.NewRequest(&agentpb.MonitorsRequest{Levels: []*agentpb.MonitorLevel{level("/", true, 99)}})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a revoked agent: %v", err)
	}
}
