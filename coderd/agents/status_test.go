package agents_test

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for _, tt := range []struct {
		name                     string
		created                  time.Duration
		timeout                  int32
		first, last, disconnects *time.Time
		want                     sdk.AgentStatus
	}{
		{"just made", time.Second, 120, nil, nil, nil, sdk.AgentConnecting},
		{"at the limit", 120 * time.Second, 120, nil, nil, nil, sdk.AgentConnecting},
		{"beyond the limit", 121 * time.Second, 120, nil, nil, nil, sdk.AgentTimeout},
		{"no limit", 24 * time.Hour, 0, nil, nil, nil, sdk.AgentConnecting},
		{"connected", time.Minute, 120, ago(30 * time.Second), ago(30 * time.Second), nil, sdk.AgentConnected},
		{"connected late", time.Hour, 120, ago(time.Second), ago(time.Second), nil, sdk.AgentConnected},
		{"gone", time.Hour, 120, ago(time.Minute), ago(time.Minute), ago(time.Second), sdk.AgentDisconnected},
		{"back again", time.Hour, 120, ago(time.Hour), ago(time.Second), nil, sdk.AgentConnected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := agents.Status(now, dbsqlc.WorkspaceAgent{
				CreatedAt: now.Add(-tt.created), ConnectionTimeoutSeconds: tt.timeout,
				FirstConnectedAt: tt.first, LastConnectedAt: tt.last, DisconnectedAt: tt.disconnects,
			})
			if got != tt.want {
				t.Errorf("Status = %s, want %s", got, tt.want)
			}
		})
	}
}
