package jobs

import (
	"testing"
	"time"
)

func TestStoppingServer(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for before, want := range map[time.Duration]string{
		61 * time.Second: "The server of the provisioner p is stopping. It waits for this job until 12:00:00 UTC, 1m1s from now, and then interrupts it.",
		0:                "The server of the provisioner p is stopping and has interrupted the job at 12:00:00 UTC.",
	} {
		if got, remedy := stoppingServer("p", end, end.Add(-before)); got != want || remedy == "" {
			t.Errorf("%s before: %q, %q, want %q", before, got, remedy, want)
		}
	}
}
