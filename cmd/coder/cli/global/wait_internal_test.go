package global

import (
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// TestSayWait checks what users read while requests wait.
func TestSayWait(t *testing.T) {
	t.Parallel()
	away := sdk.Wait{Reason: "The database is not reachable.", Limit: 30 * time.Second}
	slow := sdk.Wait{Reason: "The server has not answered for 4s.", Limit: time.Minute, Slow: true}
	for _, c := range []struct {
		wait     sdk.Wait
		terminal bool
		want     string
	}{
		{away, true, "The database is not reachable. Waiting up to 30s for it.\n"},
		{away, false, "The database is not reachable. Waiting up to 30s for it.\n"},
		{slow, true, "The server has not answered for 4s. Waiting up to 60s for it.\n"},
		{slow, false, ""},
	} {
		var said strings.Builder
		sayWait(&tty.Streams{Err: &said, ErrTTY: c.terminal}, c.wait)
		if said.String() != c.want {
			t.Errorf("%+v, terminal: %t: said %q, want %q", c.wait, c.terminal, said.String(), c.want)
		}
	}
}
