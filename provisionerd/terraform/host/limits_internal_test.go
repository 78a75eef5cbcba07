package host

import "testing"

// TestFell checks which losses of a disk's free space make the daemon look at once at what a job holds.
func TestFell(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, now []uint64
		want        bool
	}{
		"the first look":       {nil, []uint64{5, 5}, false},
		"as before":            {[]uint64{100, 100}, []uint64{100, 100}, false},
		"a little":             {[]uint64{100, 100}, []uint64{90, 100}, false},
		"much":                 {[]uint64{100, 100}, []uint64{100, 89}, true},
		"much, beside a gain":  {[]uint64{100, 100}, []uint64{200, 89}, true},
		"a gain":               {[]uint64{100, 100}, []uint64{200, 100}, false},
		"a disk that is gone":  {[]uint64{100, 100}, []uint64{100, 0}, true},
		"a disk that has come": {[]uint64{100, 0}, []uint64{100, 100}, false},
	} {
		if got := fell(c.before, c.now, 10); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
