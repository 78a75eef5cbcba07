package target

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestNotices checks that a session announces a stop once, again after it was postponed, and asks the server no more often than it must.
func TestNotices(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	ws := func(at time.Duration) sdk.Workspace {
		stop, announce := start.Add(at), start.Add(at-30*time.Minute)
		return sdk.Workspace{OwnerName: "ann", Name: "dev", Consequences: []sdk.ScheduledConsequence{
			{Action: sdk.ScheduledStop, At: &stop, AnnounceAt: &announce, Explanation: "Stops at " + stop.Format("15:04") + "."},
		}}
	}
	often := notices{every: time.Minute}
	if often.look(ws(8*time.Hour), start); !often.askAt.Equal(start.Add(time.Minute)) {
		t.Errorf("asked after %s, want a minute", often.askAt.Sub(start))
	}
	var n notices
	for _, step := range []struct {
		after time.Duration
		ws    sdk.Workspace
		news  []string
		ask   time.Duration
	}{
		{0, ws(8 * time.Hour), nil, time.Hour},
		{7 * time.Hour, ws(8 * time.Hour), nil, 7*time.Hour + 30*time.Minute},
		{7*time.Hour + 30*time.Minute, ws(8 * time.Hour), []string{"ann/dev: Stops at 18:00."}, 8 * time.Hour},
		{7*time.Hour + 40*time.Minute, ws(8 * time.Hour), nil, 8 * time.Hour},
		{8 * time.Hour, ws(9 * time.Hour), nil, 8*time.Hour + 30*time.Minute},
		{8*time.Hour + 30*time.Minute, ws(9 * time.Hour), []string{"ann/dev: Stops at 19:00."}, 9 * time.Hour},
		{9 * time.Hour, sdk.Workspace{}, nil, 10 * time.Hour},
	} {
		news := n.look(step.ws, start.Add(step.after))
		if diff := cmp.Diff(step.news, news); diff != "" || !n.askAt.Equal(start.Add(step.ask)) {
			t.Errorf("after %s: ask after %s, want %s; %s", step.after, n.askAt.Sub(start), step.ask, diff)
		}
	}
}
