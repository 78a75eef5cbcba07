package logship_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/logship"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is the server's side: it keeps lines whose number follows the last one.
type store struct {
	lines  map[uuid.UUID][]string
	failed int // calls whose lines are stored but whose answer is lost
	full   bool
	gap    error
	calls  int
}

func (s *store) send(_ context.Context, source uuid.UUID, lines []logship.Line) (uint64, bool, error) {
	s.calls++
	if s.lines == nil {
		s.lines = make(map[uuid.UUID][]string)
	}
	for _, l := range lines {
		have := uint64(len(s.lines[source]))
		if l.Seq > have+1 {
			s.gap = fmt.Errorf("line %d after %d", l.Seq, have)
		}
		if l.Seq == have+1 {
			s.lines[source] = append(s.lines[source], l.Output)
		}
	}
	if s.failed > 0 && len(lines) > 0 {
		s.failed--
		return 0, false, errors.New("answer lost")
	}
	return uint64(len(s.lines[source])), s.full, nil
}

// ship runs the queue as an agent does, and again after every error.
func ship(ctx context.Context, q *logship.Queue, send logship.Send) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = q.Run(ctx, send)
		}
	}()
	return func() { cancel(); <-done }
}

func TestLostAnswersStoreOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := uuid.New()
		s := &store{lines: map[uuid.UUID][]string{source: {"from an earlier agent"}}, failed: 3}
		q := logship.New()
		w := q.Source(source).Writer(logship.Info)
		want := []string{"from an earlier agent"}
		for i := range 1000 {
			fmt.Fprintf(w, "line %d\n", i)
			want = append(want, fmt.Sprintf("line %d", i))
		}
		stop := ship(t.Context(), q, s.send)
		defer stop()
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.lines[source]); diff != "" || s.gap != nil {
			t.Errorf("stored lines (-want +got), gap %v:\n%s", s.gap, diff)
		}
	})
}

func TestBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, s, source := logship.New(), &store{}, uuid.New()
		w := q.Source(source).Writer(logship.Info)
		for i := range 20000 {
			fmt.Fprintln(w, "line", i)
		}
		stop := ship(t.Context(), q, s.send)
		defer stop()
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := s.lines[source]
		gap := slices.IndexFunc(got, func(line string) bool { return strings.Contains(line, "lines were dropped") })
		if gap < 1000 || len(got) > 4097 || got[0] != "line 0" || got[gap-1] != fmt.Sprint("line ", gap-1) || got[len(got)-1] != "line 19999" ||
			!strings.Contains(got[gap], fmt.Sprintf("[%d lines were dropped", 20000-len(got)+1)) {
			t.Errorf("stored %d lines, %q … %q, gap at %d; want the first and the last, and how many are missing", len(got), got[0], got[len(got)-1], gap)
		}
		start, calls := time.Now(), s.calls
		for range 4000 {
			fmt.Fprintln(w, strings.Repeat("y", 60))
		}
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took, n := time.Since(start), s.calls-calls; took < time.Duration(n-1)*100*time.Millisecond {
			t.Errorf("%d calls took %v, want a tenth of a second between two", n, took)
		}
	})
}

// TestLongLogIsSentSlowly: when the server keeps only the last lines, sending is slow; a flush does not wait for the slow pace.
func TestLongLogIsSentSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, s := logship.New(), &store{full: true}
		stop := ship(t.Context(), q, s.send)
		defer stop()
		source, other := uuid.New(), uuid.New()
		w := q.Source(source).Writer(logship.Info)
		for i := range 100_000 {
			fmt.Fprintln(w, "line", i)
			if i%1000 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		if s.calls > 8 {
			t.Errorf("%d calls in 10 s, want one in 2 s", s.calls)
		}
		start := time.Now()
		q.Source(other).Add(logship.Info, "bye")
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := s.lines[source]
		if took := time.Since(start); took > 3*time.Second || got[len(got)-1] != "line 99999" || len(s.lines[other]) != 1 || s.gap != nil {
			t.Errorf("flush took %v, last line %q, other source %q, gap %v", took, got[len(got)-1], s.lines[other], s.gap)
		}
	})
}

func TestWriterSplits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct{ in, want []string }{
			"lines":         {[]string{"a\nb\r\n\nc"}, []string{"a", "b", "", "c"}},
			"pieces":        {[]string{"a", "b\nc", "\n"}, []string{"ab", "c"}},
			"not utf-8":     {[]string{"a\xff\x00b\n"}, []string{"a\uFFFD\uFFFDb"}},
			"long":          {[]string{strings.Repeat("x", 20000) + "\n"}, []string{strings.Repeat("x", 8192), strings.Repeat("x", 8192), strings.Repeat("x", 3616)}},
			"long in words": {[]string{"a" + strings.Repeat("ü", 5000) + "\n"}, []string{"a" + strings.Repeat("ü", 4095), strings.Repeat("ü", 905)}},
		} {
			q, s, source := logship.New(), &store{}, uuid.New()
			w := q.Source(source).Writer(logship.Info)
			for _, part := range test.in {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Errorf("%s: write: %d, %v", name, n, err)
				}
			}
			w.Close()
			stop := ship(t.Context(), q, s.send)
			if err := q.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			stop()
			if diff := cmp.Diff(test.want, s.lines[source]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

func FuzzWriter(f *testing.F) {
	f.Add([]byte("a\nb"), 1)
	f.Add([]byte("\xf0\x9f\x98\x80\r\n\x00"), 3)
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		if len(data) == 0 {
			return // nothing would ever be sent
		}
		step = max(1, min(step, 1<<16))
		q, source := logship.New(), uuid.New()
		w := q.Source(source).Writer(logship.Info)
		for rest := data; len(rest) > 0; {
			n := min(step, len(rest))
			_, _ = w.Write(rest[:n])
			rest = rest[n:]
		}
		w.Close()
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_ = q.Run(ctx, func(_ context.Context, _ uuid.UUID, lines []logship.Line) (uint64, bool, error) {
			for _, l := range lines {
				if !utf8.ValidString(l.Output) || strings.ContainsAny(l.Output, "\x00\n") || len(l.Output) > 3*8192 {
					t.Errorf("line %q", l.Output)
				}
			}
			if calls++; calls == 2 {
				cancel()
			}
			return 0, false, ctx.Err()
		})
		cancel()
	})
}
