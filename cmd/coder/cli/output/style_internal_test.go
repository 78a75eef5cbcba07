package output

import (
	"testing"

	"github.com/codermesh/codermesh/v2/internal/tty"
)

func TestStatusTone(t *testing.T) {
	t.Parallel()
	tone := statusTone([]string{"name", "status"})
	for _, tt := range []struct {
		column int
		cell   string
		want   tty.Tone
	}{
		{1, "Running", tty.Good}, {1, "connected, ready", tty.Good}, {1, "Failed", tty.Bad}, {1, "Stopped", tty.Quiet}, {1, "pending", tty.Busy},
		{1, "something else", tty.Plain}, {1, "", tty.Plain}, {0, "running", tty.Plain},
	} {
		if got := tone(tt.column, tt.cell); got != tt.want {
			t.Errorf("column %d, %q: got %q, want %q", tt.column, tt.cell, got, tt.want)
		}
	}
}
