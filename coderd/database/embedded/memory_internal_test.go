//go:build unix

package embedded

import (
	"slices"
	"testing"
)

func TestSettingsFollowMemory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		memory uint64
		want   []string
	}{
		{0, []string{"shared_buffers=32MB", "max_connections=40"}},
		{2 * gibibyte, []string{"shared_buffers=32MB", "max_connections=40"}},
		{4 * gibibyte, []string{"shared_buffers=256MB", "max_connections=100", "effective_cache_size=1024MB"}},
		{24 * gibibyte, []string{"shared_buffers=384MB", "maintenance_work_mem=384MB"}},
		{64 * gibibyte, []string{"shared_buffers=1024MB", "maintenance_work_mem=1024MB"}},
		{1024 * gibibyte, []string{"shared_buffers=4096MB", "maintenance_work_mem=1024MB"}},
	} {
		got := sized(tt.memory)
		for _, want := range tt.want {
			if !slices.Contains(got, want) {
				t.Errorf("%d bytes of memory: %q, want %s", tt.memory, got, want)
			}
		}
	}
}

func TestTotalMemory(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		"MemTotal:       16384 kB\nMemFree: 1 kB\n": 16 << 20,
		"MemFree: 1 kB\n":                      0,
		"":                                     0,
		"MemTotal:":                            0,
		"MemTotal: many kB":                    0,
		"MemTotal: -1 kB":                      0,
		"MemTotal: 99999999999999999999999 kB": 0,
	} {
		if got := totalMemory([]byte(text)); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}

func FuzzTotalMemory(f *testing.F) {
	f.Add([]byte("MemTotal:       16384 kB\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { sized(totalMemory(text)) })
}
