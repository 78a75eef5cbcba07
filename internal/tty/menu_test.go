//go:build unix

package tty_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/codermesh/codermesh/v2/internal/tty"
)

// terminal is a pseudo-terminal with a user before it.
type terminal struct {
	t       *testing.T
	keys    *os.File
	streams *tty.Streams
	changed chan struct{} // capacity 1: shown grew

	mu    sync.Mutex // guards the fields below
	shown bytes.Buffer
	total strings.Builder // what was forgotten
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	user, program, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(user, &pty.Winsize{Rows: 12, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, keys: user, changed: make(chan struct{}, 1),
		streams: &tty.Streams{In: program, Out: program, Err: program, InTTY: true, OutTTY: true, ErrTTY: true, Color: true}}
	var screen sync.WaitGroup
	screen.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := user.Read(buf)
			x.mu.Lock()
			x.shown.Write(buf[:n])
			x.mu.Unlock()
			select {
			case x.changed <- struct{}{}:
			default:
			}
			if err != nil {
				return // the program's end is closed
			}
		}
	})
	t.Cleanup(func() {
		_, _ = user.WriteString("\n") // ends a read that a failed test has left; nothing else needs it
		program.Close()
		screen.Wait()
		user.Close()
	})
	return x
}

// ask asks in the background.
func (x *terminal) ask(ctx context.Context, q tty.Question) <-chan result {
	out := make(chan result, 1)
	go func() {
		answer, err := x.streams.Ask(ctx, q)
		out <- result{answer, err}
	}()
	return out
}

type result struct {
	answer string
	err    error
}

// sees waits until text was shown.
func (x *terminal) sees(text string) {
	x.t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		x.mu.Lock()
		shown := x.shown.String()
		x.mu.Unlock()
		if strings.Contains(shown, text) {
			return
		}
		select {
		case <-x.changed:
		case <-timeout:
			x.t.Fatalf("shown: %q, want %q", shown, text)
		}
	}
}

// forget forgets what was shown so far.
func (x *terminal) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.total.Write(x.shown.Bytes())
	x.shown.Reset()
}

func (x *terminal) types(keys string) {
	x.t.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

var colors = []tty.Choice{
	{Label: "Amber", Value: "a"}, {Label: "Blue", Help: "like the sea", Value: "b"}, {Label: "Cyan", Value: "c"}, {Label: "Dark blue", Value: "d"},
}

const (
	up   = "\x1b[A"
	down = "\x1b[B"
)

func TestMenu(t *testing.T) {
	t.Parallel()
	type press struct{ keys, shown string } // what is typed, and what is on the screen afterwards
	refuse := func(answer string) error {
		if answer == "a" {
			return errors.New("not today")
		}
		return nil
	}
	one, many := tty.Question{Text: "Color", Choices: colors}, tty.Question{Text: "Color", Choices: colors, Many: true}
	with := func(q tty.Question, change func(*tty.Question)) tty.Question {
		change(&q)
		return q
	}
	for _, tt := range []struct {
		name    string
		q       tty.Question
		presses []press
		want    string
	}{
		{"the first", one, []press{{"\r", "\x1b[0m Amber"}}, "a"},
		{"the default", with(one, func(q *tty.Question) { q.Default = "c" }), []press{{"", "> Cyan"}, {"\r", "\x1b[0m Cyan"}}, "c"},
		{"an empty default", tty.Question{Text: "Color", Choices: append(colors[:1:1], tty.Choice{Label: "None"}), HasDefault: true}, []press{{"", "> None"}, {"\r", ""}}, ""},
		{"down", one, []press{{down, "> Blue"}, {down, "> Cyan"}, {"\r", "\x1b[0m Cyan"}}, "c"},
		{"several keys at once", one, []press{{down + down + "\r", "\x1b[0m Cyan"}}, "c"},
		{"up from the first", one, []press{{up, "> Dark blue"}, {"\r", ""}}, "d"},
		{"a key in two parts", one, []press{{"\x1b[", ""}, {"B", "> Blue"}, {"\r", ""}}, "b"},
		{"last and first", one, []press{{"\x1b[F", "> Dark blue"}, {"\x1b[H", "> Amber"}, {"\r", ""}}, "a"},
		{"filter: names that begin so come first", one, []press{{"blue", "> Blue"}, {"\r", ""}}, "b"},
		{"filter by the help", one, []press{{"sea", "> Blue"}, {"\r", ""}}, "b"},
		{"filter and erase", one, []press{{"zz", "No choice matches."}, {"\x7f\x7fcy", "> Cyan"}, {"\r", ""}}, "c"},
		{"filter and clear", one, []press{{"zz\r", "is not one of the choices."}, {"\x15", "> Amber"}, {"\r", ""}}, "a"},
		{"refused", with(one, func(q *tty.Question) { q.Check = refuse }), []press{{"\r", "Not today."}, {down, "> Blue"}, {"\r", ""}}, "b"},
		{"checklist", many, []press{{" ", "> [x] Amber"}, {down + down + " ", "> [x] Cyan"}, {"\r", "\x1b[0m Amber, Cyan"}}, `["a","c"]`},
		{"checklist with defaults", with(many, func(q *tty.Question) { q.Default = `["a","d"]` }), []press{{"", "[x] Dark blue"}, {" ", "> [ ] Amber"}, {"\r", ""}}, `["d"]`},
		{"checklist, none", many, []press{{"\r", "\x1b[0m none"}}, `[]`},
		{"checklist with a filter", many, []press{{"cy ", "> [x] Cyan"}, {"\x15 ", "> [x] Amber"}, {"\r", ""}}, `["a","c"]`},
		{"hostile", tty.Question{Text: "x\x1b]0;t\a", Choices: []tty.Choice{{Label: "\x1b[2Jy\nz", Help: "\u009bA", Value: "v"}}}, []press{{"", "> y z"}, {"\r", ""}}, "v"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newTerminal(t)
			before, err := term.GetState(int(x.streams.In.(*os.File).Fd()))
			if err != nil {
				t.Fatal(err)
			}
			got := x.ask(t.Context(), tt.q)
			x.sees("typing filters")
			for _, p := range tt.presses {
				if p.keys != "" {
					x.forget()
					x.types(p.keys)
				}
				x.sees(p.shown)
			}
			if r := <-got; r.err != nil || r.answer != tt.want {
				t.Errorf("got %q, %v, want %q", r.answer, r.err, tt.want)
			}
			x.sees("\x1b[?25h") // the cursor is back
			x.forget()
			x.mu.Lock()
			if shown := x.total.String(); strings.ContainsAny(shown, "\a\u009b") || strings.Contains(shown, "\x1b[2J") {
				t.Errorf("shown: %q", shown)
			}
			x.mu.Unlock()
			after, err := term.GetState(int(x.streams.In.(*os.File).Fd()))
			if err != nil || *after != *before {
				t.Errorf("the terminal's mode is %v, %v, want %v", after, err, before)
			}
		})
	}
}

// TestMenuScrolls: a long list moves below the cursor, and lines fit the terminal.
func TestMenuScrolls(t *testing.T) {
	t.Parallel()
	x := newTerminal(t)
	q := tty.Question{Text: "Number"}
	for _, label := range strings.Fields("one two three four five six seven eight nine ten eleven twelve") {
		q.Choices = append(q.Choices, tty.Choice{Label: label, Help: strings.Repeat("long ", 20), Value: label})
	}
	got := x.ask(t.Context(), q)
	x.sees("(4 more)")
	x.sees("…")
	x.types("\x1b[6~")
	x.sees("> eleven")
	x.types("\r")
	if r := <-got; r.err != nil || r.answer != "eleven" {
		t.Errorf("got %+v", r)
	}
}

// TestMenuGivenUp: each way to leave a menu restores the terminal, and the next question gets what is typed afterwards.
func TestMenuGivenUp(t *testing.T) {
	t.Parallel()
	x := newTerminal(t)
	q := tty.Question{Text: "Color", Choices: colors}
	for keys, want := range map[string]error{"\x03": tty.ErrInterrupted, "\x04": io.ErrUnexpectedEOF} {
		x.forget()
		got := x.ask(t.Context(), q)
		x.sees("typing filters")
		x.types(keys)
		if r := <-got; !errors.Is(r.err, want) {
			t.Errorf("%q: got %+v, want %v", keys, r, want)
		}
	}
	x.forget()
	got := x.ask(t.Context(), tty.Question{Text: "Name"})
	x.sees("Name")
	x.types("ada\n")
	if r := <-got; r.err != nil || r.answer != "ada" {
		t.Errorf("the next question: got %+v", r)
	}
	x.forget()
	ctx, cancel := context.WithCancel(t.Context())
	got = x.ask(ctx, q)
	x.sees("typing filters")
	cancel()
	if r := <-got; !errors.Is(r.err, context.Canceled) {
		t.Errorf("canceled: got %+v", r)
	}
}

// TestColored: tables have colors on a terminal.
func TestColored(t *testing.T) {
	x := newTerminal(t)
	t.Setenv("TERM", "xterm-256color")
	if _, off := os.LookupEnv("NO_COLOR"); off {
		t.Skip("NO_COLOR is set")
	}
	if !tty.Colored(x.streams.Out) {
		t.Error("a terminal has no colors")
	}
	t.Setenv("NO_COLOR", "1")
	if tty.Colored(x.streams.Out) {
		t.Error("NO_COLOR leaves colors")
	}
}

// TestNoMenu: without colors, and where the input is no terminal, choices are numbered.
func TestNoMenu(t *testing.T) {
	t.Parallel()
	x := newTerminal(t)
	x.streams.Color = false
	got := x.ask(t.Context(), tty.Question{Text: "Color", Choices: colors})
	x.sees("4) Dark blue")
	x.types("4\n")
	if r := <-got; r.err != nil || r.answer != "d" {
		t.Errorf("got %+v", r)
	}
}
