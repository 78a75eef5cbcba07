package memory_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/memory"
)

var sink []byte

// burstUntil allocates, so that the collector runs, until done.
func burstUntil(t *testing.T, done func() bool) {
	for !done() && t.Context().Err() == nil {
		for range 64 {
			sink = make([]byte, 1<<20)
		}
		sink = nil
		runtime.Gosched()
	}
}

func TestBurstsAreGivenBack(t *testing.T) {
	var over atomic.Uint64
	r := memory.Return(time.Nanosecond, func() { over.Add(1) })
	defer r.Stop()
	for want := range uint64(3) {
		burstUntil(t, func() bool { return r.Returned() > want })
		if got := over.Load(); got <= want {
			t.Errorf("after %d returns, %d bursts were reported as over", want+1, got)
		}
	}
}

func TestStop(t *testing.T) {
	r := memory.Return(time.Hour, nil)
	r.Stop()
	r.Stop()
	runtime.GC()
	if got := r.Returned(); got != 0 {
		t.Errorf("a stopped returner gave memory back %d times", got)
	}
}
