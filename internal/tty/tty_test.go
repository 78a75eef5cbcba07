package tty_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/tty"
)

func streams(in string) (*tty.Streams, *bytes.Buffer) {
	var out bytes.Buffer
	return &tty.Streams{In: strings.NewReader(in), Out: io.Discard, Err: &out, InTTY: true}, &out
}

func TestAsk(t *testing.T) {
	t.Parallel()
	choices := []tty.Choice{{Label: "Europe", Value: "eu"}, {Label: "Asia", Value: "as"}}
	short := func(answer string) error {
		if len(answer) > 3 {
			return errors.New("too long")
		}
		return nil
	}
	for _, tt := range []struct {
		name, in string
		q        tty.Question
		want     string
		shown    string
	}{
		{"plain", " ada \n", tty.Question{Text: "Name"}, "ada", "Name: "},
		{"default", "\n", tty.Question{Text: "Name", Default: "bob"}, "bob", "Name [bob]: "},
		{"empty default", "\n", tty.Question{Text: "Name", HasDefault: true}, "", "Name: "},
		{"needed", "\nada\n", tty.Question{Text: "Name"}, "ada", "An answer is required."},
		{"checked", "abcdef\nabc\n", tty.Question{Text: "Name", Check: short}, "abc", "Too long."},
		{"by number", "2\n", tty.Question{Text: "Region", Choices: choices}, "as", "2) Asia"},
		{"by label", "europe\n", tty.Question{Text: "Region", Choices: choices}, "eu", ""},
		{"by value", "eu\n", tty.Question{Text: "Region", Choices: choices}, "eu", ""},
		{"default choice", "\n", tty.Question{Text: "Region", Choices: choices, Default: "as"}, "as", "[2]"},
		{"none of them", "3\n1\n", tty.Question{Text: "Region", Choices: choices}, "eu", `"3" is not one of the choices.`},
		{"several by number", "2, 1\n", tty.Question{Text: "Region", Choices: choices, Many: true}, `["as","eu"]`, "2) Asia"},
		{"several in JSON", `["eu"]` + "\n", tty.Question{Text: "Region", Choices: choices, Many: true}, `["eu"]`, ""},
		{"several, none of them", "1,x\n\n", tty.Question{Text: "Region", Choices: choices, Many: true}, `[]`, `"x" is not one of the choices.`},
		{"several by default", "\n", tty.Question{Text: "Region", Choices: choices, Many: true, Default: `["eu","as"]`}, `["eu","as"]`, "[1,2]"},
		{"several texts", "a, b,\n", tty.Question{Text: "Tags", Many: true, Default: `["x"]`}, `["a","b"]`, "Tags [x]"},
		{"several texts in JSON", `["a,b"]` + "\n", tty.Question{Text: "Tags", Many: true}, `["a,b"]`, ""},
		{"no newline at the end", "ada", tty.Question{Text: "Name"}, "ada", ""},
		{"secret keeps blanks", " x \n", tty.Question{Text: "Password", Secret: true}, " x ", ""},
	} {
		s, out := streams(tt.in)
		got, err := s.Ask(t.Context(), tt.q)
		if err != nil || got != tt.want || !strings.Contains(out.String(), tt.shown) {
			t.Errorf("%s: got %q, %v, want %q; shown %q, want %q in it", tt.name, got, err, tt.want, out, tt.shown)
		}
	}
}

func TestAskTwiceLosesNothing(t *testing.T) {
	t.Parallel()
	s, _ := streams("first\nsecond\nyes\n")
	for _, want := range []string{"first", "second"} {
		if got, err := s.Ask(t.Context(), tty.Question{Text: "?"}); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if yes, err := s.Confirm(t.Context(), "Sure?", false); err != nil || !yes {
		t.Errorf("confirm: got %v, %v", yes, err)
	}
	if _, err := s.Ask(t.Context(), tty.Question{Text: "?"}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("at the end: got %v", err)
	}
}

func TestAskNobody(t *testing.T) {
	t.Parallel()
	s, out := streams("ada\n")
	s.InTTY = false
	if _, err := s.Ask(t.Context(), tty.Question{Text: "Name", Default: "x"}); !errors.Is(err, tty.ErrNotTerminal) || out.Len() > 0 {
		t.Errorf("got %v, printed %q", err, out)
	}
	s, _ = streams("")
	r, w := io.Pipe()
	defer w.Close()
	s.In = r
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Ask(ctx, tty.Question{Text: "Name"}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := tty.Table{Header: []string{"name", "state"}}
	table.Add("dev", "running")
	table.Add("größe\nx", "")
	table.Add("\x1b[31mred", "no colour")
	var out bytes.Buffer
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := "NAME     STATE\ndev      running\ngröße x\nred      no colour\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTableInColor: colors take no width, and headers have none.
func TestTableInColor(t *testing.T) {
	t.Parallel()
	table := tty.Table{Header: []string{"status", "name"}, Style: func(column int, _ string) tty.Tone {
		return map[int]tty.Tone{0: tty.Good}[column]
	}}
	table.Add("up", "a")
	table.Add("waiting", "b")
	var out bytes.Buffer
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := "STATUS   NAME\n\x1b[32mup\x1b[0m       a\n\x1b[32mwaiting\x1b[0m  b\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if tty.Colored(&out) {
		t.Error("a buffer is taken for a terminal")
	}
}

// TestTableOfWideCharacters: columns line up if characters take two cells, or several form one.
func TestTableOfWideCharacters(t *testing.T) {
	t.Parallel()
	table := tty.Table{Header: []string{"name", "state"}}
	table.Add("開発", "a")              // two places each
	table.Add("👩‍💻", "b")             // three characters in two places
	table.Add("e\u0301te\u0301", "c") // combining accents
	table.Add("ﾃｽﾄ", "d")             // half width
	table.Add("🇩🇪", "e")              // a flag of two letters
	table.Add("plain", "f")
	var out bytes.Buffer
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := "NAME   STATE\n開発   a\n👩‍💻     b\ne\u0301te\u0301    c\nﾃｽﾄ    d\n🇩🇪     e\nplain  f\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProgressOnAPipe(t *testing.T) {
	t.Parallel()
	s, out := streams("")
	p := s.Progress()
	p.Stage("Planning")
	p.Note("position 1 of 2")
	p.Note("position 1 of 2")
	p.Line("a line")
	p.Stage("Planning")
	p.Stage("Applying")
	p.Stop(true)
	p.Stop(false)
	want := "==> Planning\n    position 1 of 2\na line\n==> Applying\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	s, out := streams("")
	s.ErrTTY = true
	p := s.Progress()
	p.Stage("Planning")
	p.Line("a line")
	p.Stop(false)
	text := out.String()
	for _, want := range []string{"Planning", "a line\n", "✘ Planning"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if strings.Contains(text, "\x1b[3") {
		t.Errorf("%q has colours that were not asked for", text)
	}
}
