package sdk

import (
	"slices"
	"strings"
	"testing"
)

// TestReadEvents: events count when they are complete, and whatever else is in the stream is skipped.
func TestReadEvents(t *testing.T) {
	t.Parallel()
	var got []EventKind
	stream := ": ping\n\nevent: ready\ndata: {}\n\nevent: workspace\ndata: {\"id\":1}\n\ndata: {}\n\nevent: build\r\ndata: {}\r\n\r\nevent: cut"
	err := readEvents(strings.NewReader(stream), func() {}, func(k EventKind) bool { got = append(got, k); return true })
	if want := []EventKind{EventReady, EventWorkspace, EventBuild}; err == nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if err := readEvents(strings.NewReader(stream), func() {}, func(EventKind) bool { return false }); err != nil {
		t.Errorf("a reader that has had enough: %v", err)
	}
}

// FuzzReadEvents: any stream can be read, and comes to an end.
func FuzzReadEvents(f *testing.F) {
	f.Add("event: ready\ndata: {}\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		err := readEvents(strings.NewReader(stream), func() {}, func(k EventKind) bool {
			if strings.ContainsAny(string(k), "\n") || k == "" {
				t.Errorf("an event %q", k)
			}
			return true
		})
		if err == nil {
			t.Error("no end")
		}
	})
}
