package users

import (
	"runtime"
	"testing"
)

// TestUnknownAccountsCostAHash checks that a guess at an account that does not exist, or has no password, costs a whole hash, so that the time
// of the answer tells nothing. A hash's memory shows that it was computed. The test is not parallel, so that nothing else allocates.
func TestUnknownAccountsCostAHash(t *testing.T) {
	cost := func(password, stored string) uint64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if good, err := verify(password, stored); good || err != nil {
			t.Errorf("a guess: %t, %v", good, err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	stored, err := newHasher().hash(t.Context(), newPair("ann", here), "Correct-Horse-9-Battery")
	if err != nil {
		t.Fatal(err)
	}
	const hash = argonMemory * 1024
	for what, got := range map[string]uint64{
		"a wrong password":   cost("guess", stored),
		"an unknown account": cost("guess", ""),
		"a long password":    cost(string(make([]byte, 10*maxPassword)), stored),
	} {
		if got < hash || got >= 2*hash {
			t.Errorf("%s: %d bytes, want those of one hash, %d", what, got, hash)
		}
	}
}
