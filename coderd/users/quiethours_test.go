package users_test

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestQuietHours(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t, func(o *coderd.Options) { o.QuietHours = "CRON_TZ=America/New_York 30 1 * * *" })
	ann := s.As("ann")
	want := func(when string, got sdk.QuietHours, err error, raw string, own bool, clock, zone string) {
		t.Helper()
		if err != nil || got.RawSchedule != raw || got.UserSet != own || !got.UserCanSet || got.Time != clock || got.Timezone != zone || !got.Next.After(time.Now()) {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	got, err := ann.QuietHours(t.Context(), sdk.Me)
	want("before", got, err, "CRON_TZ=America/New_York 30 1 * * *", false, "01:30", "America/New_York")
	const mine = "CRON_TZ=Europe/Berlin 0 22 * * *"
	got, err = ann.UpdateQuietHours(t.Context(), sdk.Me, sdk.UpdateQuietHoursRequest{Schedule: mine})
	want("set", got, err, mine, true, "22:00", "Europe/Berlin")
	for _, bad := range []string{"22:00", "0 22 * * 1", "* * * * *", "CRON_TZ=Nowhere/Here 0 22 * * *"} {
		if _, err := ann.UpdateQuietHours(t.Context(), sdk.Me, sdk.UpdateQuietHoursRequest{Schedule: bad}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
	got, err = s.As("olga").QuietHours(t.Context(), "ann")
	want("read by an owner", got, err, mine, true, "22:00", "Europe/Berlin")
	for _, other := range []string{"bob", "tom"} {
		if _, err := s.As(other).QuietHours(t.Context(), "ann"); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s reads them: %v, want not found", other, err)
		}
		if _, err := s.As(other).UpdateQuietHours(t.Context(), "ann", sdk.UpdateQuietHoursRequest{Schedule: mine}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s changes them: %v, want not found", other, err)
		}
	}
	got, err = ann.UpdateQuietHours(t.Context(), sdk.Me, sdk.UpdateQuietHoursRequest{})
	want("back", got, err, "CRON_TZ=America/New_York 30 1 * * *", false, "01:30", "America/New_York")
}

// TestFixedQuietHours checks that users cannot set theirs where the operator does not allow it.
func TestFixedQuietHours(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t, func(o *coderd.Options) { o.FixedQuietHours = true })
	if _, err := s.As("ann").UpdateQuietHours(t.Context(), sdk.Me, sdk.UpdateQuietHoursRequest{Schedule: "0 22 * * *"}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("set: %v, want forbidden", err)
	}
	if got, err := s.As("ann").QuietHours(t.Context(), sdk.Me); err != nil || got.UserCanSet || got.UserSet || got.RawSchedule != "CRON_TZ=UTC 0 0 * * *" {
		t.Errorf("read: %+v, %v", got, err)
	}
}
