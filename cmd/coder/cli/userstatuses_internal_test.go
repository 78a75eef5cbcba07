package cli

import (
	"encoding/json"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestUserStatusCounts checks the days that the command prints.
func TestUserStatusCounts(t *testing.T) {
	t.Parallel()
	var active, suspended sdk.List[sdk.UserStatusCount]
	for i := range 60 {
		day := sampleTime.AddDate(0, 0, i-59)
		active = append(active, sdk.UserStatusCount{Date: day, Count: int64(i)})
		suspended = append(suspended, sdk.UserStatusCount{Date: day, Count: int64(100 + i)})
	}
	srv := newAPI(t, map[string]any{"GET insights/user-status-counts": sdk.UserStatusCountsResponse{
		StatusCounts: sdk.Map[sdk.List[sdk.UserStatusCount]]{"active": active, "suspended": suspended},
	}})
	at := []string{"--url", srv.url, "--token", "t", "users", "status-counts"}
	if r := run(t, "", "", append(at, "--days", "2")...); r.fault != nil || r.out != "DATE        ACTIVE  DORMANT  SUSPENDED\n2026-05-03  58      0        158\n2026-05-04  59      0        159\n" {
		t.Errorf("got %v\n%s", r.fault, r.out)
	}
	var got []map[string]any
	if r := run(t, "", "", append(at, "-o", "json")...); r.fault != nil || json.Unmarshal([]byte(r.out), &got) != nil || len(got) != 14 || got[13]["date"] != "2026-05-04" {
		t.Errorf("got %v\n%s", r.fault, r.out)
	}
	for _, days := range []string{"0", "61"} {
		if r := run(t, "", "", append(at, "--days", days)...); fault.CodeOf(r.fault) != fault.Invalid {
			t.Errorf("%s days: %v", days, r.fault)
		}
	}
}
