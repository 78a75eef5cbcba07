package testwait_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// recorder is a test whose failure is recorded.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}

// failure returns how wait fails.
func failure(t *testing.T, wait func(testing.TB)) (text string) {
	t.Helper()
	r := &recorder{TB: t}
	defer func() {
		if v := recover(); v != nil && v != r {
			panic(v)
		}
		text = r.failed
	}()
	wait(r)
	return ""
}

func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if text := failure(t, func(tb testing.TB) {
			testwait.Until(tb, "the lamp is on", func() error {
				if time.Since(began) < 10*time.Second {
					return errors.New("dark")
				}
				return nil
			})
		}); text != "" || time.Since(began) < 10*time.Second || time.Since(began) > 11*time.Second {
			t.Errorf("after %s: %q", time.Since(began), text)
		}
		text := failure(t, func(tb testing.TB) {
			testwait.Until(tb, "the lamp is on", func() error { return errors.New("dark") })
		})
		if text != "still not after 1m0s: the lamp is on: dark" {
			t.Errorf("got %q", text)
		}
	})
}

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signal := make(chan int)
		go func() {
			time.Sleep(testwait.Patience - time.Second)
			signal <- 7
		}()
		if got := testwait.For(t, "a number", signal); got != 7 {
			t.Errorf("got %d", got)
		}
		if text := failure(t, func(tb testing.TB) { testwait.For(tb, "a number", signal) }); !strings.HasSuffix(text, ": a number") {
			t.Errorf("got %q", text)
		}
	})
}

func TestStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"equal":         {testwait.Equal(7, 7), ""},
		"other":         {testwait.Equal("pending", "failed"), "got pending, want failed"},
		"elements":      {testwait.Len([]string{"a"}, 1), ""},
		"more elements": {testwait.Len([]string{"a", "b"}, 1), "got 2, want 1: [a b]"},
		"text":          {testwait.Contains("connected\n", "connected"), ""},
		"other text":    {testwait.Contains("lost\n", "connected"), `want "connected" in "lost\n"`},
		"long text":     {testwait.Contains(strings.Repeat("x", 5000), "y"), `want "y" in "` + strings.Repeat("x", 4000) + `"`},
		"anything":      {testwait.Unless(true, "dark"), ""},
		"anything else": {testwait.Unless(false, "dark for %s", time.Second), "dark for 1s"},
	} {
		if got := fmt.Sprint(c.err); got != c.want && (c.err != nil || c.want != "") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
