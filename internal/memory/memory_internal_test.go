package memory

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestOwnCollectionsAreNoWork: the collections of giveBack must not restart the wait, or an idle process would never sleep.
func TestOwnCollectionsAreNoWork(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // none but those below
	runtime.GC()                                     // ends a collection that is under way
	r := Return(time.Hour, nil)
	defer r.Stop()
	r.mu.Lock()
	r.timer.Stop()
	r.mu.Unlock()

	runtime.GC()
	r.giveBack()
	r.collected()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer.Stop() {
		t.Error("the timer runs after collections that nothing but giveBack made")
	}
	if r.returned != 1 {
		t.Errorf("memory was given back %d times, want 1", r.returned)
	}
}
