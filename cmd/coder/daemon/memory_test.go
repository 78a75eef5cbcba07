package daemon_test

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
)

// TestManyAgentsDoNotKeepTheCollectorBusy holds as many bytes as the queues of a thousand agents, untouched as these are, and checks that
// the next collection waits for garbage.
func TestManyAgentsDoNotKeepTheCollectorBusy(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetGCPercent(percent)
	defer debug.SetMemoryLimit(limit)
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	defer daemon.BoundMemory().Stop()

	held := make([]byte, 700<<20)
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	live, goal := sample[0].Value.Uint64(), sample[1].Value.Uint64()
	if garbage := int64(goal - live); garbage < 64<<20 {
		t.Errorf("beside %d MB that are alive the collector waits for %d MB of garbage, want at least 64", live>>20, garbage>>20)
	}
	runtime.KeepAlive(held)
}
