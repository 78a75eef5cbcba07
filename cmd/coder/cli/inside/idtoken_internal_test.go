package inside

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestRefreshIn: a token is replaced before it ends, also with a wrong clock.
func TestRefreshIn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for left, want := range map[time.Duration]time.Duration{
		4 * time.Minute:  2 * time.Minute,
		15 * time.Minute: 5 * time.Minute,
		3 * time.Hour:    5 * time.Minute, // the clock is behind
		-3 * time.Hour:   10 * time.Second,
		time.Second:      10 * time.Second,
	} {
		if got := refreshIn(now, now.Add(left)); got != want {
			t.Errorf("%s left: got %s, want %s", left, got, want)
		}
	}
}

// TestKeepIDToken: an outage is survived with the last token, and a refusal ends the command.
func TestKeepIDToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	synctest.Test(t, func(t *testing.T) {
		away := fault.New(fault.Unavailable, "the server is away")
		answers := []struct {
			token string
			err   error
			had   string // in the file when it was asked
		}{
			{"one", nil, ""}, {"", away, "one"}, {"", away, "one"}, {"two", nil, "one"},
			{"", fault.New(fault.Forbidden, "the workspace has stopped"), "two"},
		}
		asked := 0
		var errs strings.Builder
		err := keepIDToken(t.Context(), func(context.Context, string) (login.Answer, error) {
			a := answers[asked]
			asked++
			if text, _ := os.ReadFile(path); string(text) != a.had { // no file: ""
				t.Errorf("question %d: the file has %q, want %q", asked, text, a.had)
			}
			return login.Answer{Token: a.token, Expires: time.Now().Add(15 * time.Minute)}, a.err
		}, &errs, "x", path)
		said := strings.Count(errs.String(), "the server is away")
		if asked != len(answers) || fault.CodeOf(err) != fault.Forbidden || said != 2 {
			t.Errorf("after %d questions: %v\n%s", asked, err, errs.String())
		}
	})
}

// TestKeepIDTokenEnds: an interrupt is no error, and a first failure is one.
func TestKeepIDTokenEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 58*time.Minute)
		defer stop()
		asked := 0
		if err := keepIDToken(ctx, func(context.Context, string) (login.Answer, error) {
			asked++
			return login.Answer{Token: "t", Expires: time.Now().Add(15 * time.Minute)}, nil
		}, io.Discard, "x", path); err != nil || asked != 12 {
			t.Errorf("interrupted: %d questions, %v", asked, err)
		}
		err := keepIDToken(t.Context(), func(context.Context, string) (login.Answer, error) {
			return login.Answer{}, fault.New(fault.Unavailable, "away")
		}, io.Discard, "x", path)
		if fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("a first failure: %v", err)
		}
	})
}

// TestWriteToken: the file is only for its owner, and a token that cannot be written leaves what was there.
func TestWriteToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	if err := os.WriteFile(path, []byte("a longer token that was there before"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeToken(path, "one"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "one" {
		t.Errorf("got %q, %v", text, err)
	}
	if err := writeToken(dir, "two"); fault.CodeOf(err) != fault.Invalid { // is a folder
		t.Errorf("a folder: %v", err)
	}
	left, err := fs.Glob(os.DirFS(filepath.Dir(dir)), ".coder-id-token-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
