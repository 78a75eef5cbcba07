//go:build linux

package agent_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// smallVolume mounts a file system of 4 MiB.
func smallVolume(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("cmtest", dir, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Fatalf("mount a small volume: %v: run scripts/test-prerequisites", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount the small volume: %v", err)
		}
	})
	return dir
}

func fill(t *testing.T, volume string, bytes int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(volume, "data"), make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
}

// level returns what was last reported of a volume, or nil. The world's lock is held.
func (w *world) level(volume string) *agentpb.MonitorLevel {
	if len(w.levels) == 0 {
		return nil
	}
	for _, l := range w.levels[len(w.levels)-1].GetLevels() {
		if l.GetVolume() == volume {
			return l
		}
	}
	return nil
}

// TestMonitors fills a real volume and empties it again: the agent reports both, once, and nothing else.
func TestMonitors(t *testing.T) {
	t.Parallel()
	volume := smallVolume(t)
	w := newWorld(t)
	w.manifest.Monitors = []*agentpb.Monitor{
		{ThresholdPercent: 100}, {Volume: volume, ThresholdPercent: 80}, {Volume: filepath.Join(w.dir, "missing"), ThresholdPercent: 1},
	}
	w.run(t)
	fill(t, volume, 3<<20+1<<19) // 87 %
	w.until(t, "report of a full volume", func() bool { return w.level(volume).GetOver() })
	w.mu.Lock()
	if got := w.level(volume).GetPercent(); got < 85 || got > 90 {
		t.Errorf("the volume is %d %% full, want about 87 %%", got)
	}
	if len(w.levels) != 1 || w.level("").GetOver() || w.level(filepath.Join(w.dir, "missing")).GetOver() {
		t.Errorf("%d reports, the last: %v", len(w.levels), w.levels)
	}
	w.mu.Unlock()
	// The manifest of the next connection has the stored state: nothing is to be reported, until the volume is emptied.
	w.renew(func(m *agentpb.ManifestResponse) { m.Monitors[1].Over = true })
	w.until(t, "hello with the new manifest", func() bool { return len(w.hellos) == 2 })
	fill(t, volume, 1<<20)
	w.until(t, "report of the emptied volume", func() bool { return len(w.levels) > 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.levels) != 2 || w.level(volume).GetOver() {
		t.Errorf("%d reports, the last: %v", len(w.levels), w.levels)
	}
}

// TestMonitorsOfTheServer checks that an agent whose report the server did not accept reports again.
func TestMonitorsOfTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refuseLevels = true
	w.manifest.Monitors = []*agentpb.Monitor{{ThresholdPercent: 0}} // memory is always in use
	w.run(t)
	w.until(t, "a second report", func() bool { return len(w.levels) > 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.level(""); !l.GetOver() || l.GetPercent() == 0 || l.GetPercent() > 100 {
		t.Errorf("level: %v", l)
	}
}
