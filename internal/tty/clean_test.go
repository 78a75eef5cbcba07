package tty_test

import (
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/internal/tty"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, plain, color string }{
		{"text", "grüße\tworld ✔\nnext", "grüße\tworld ✔\nnext", "grüße\tworld ✔\nnext"},
		{"title", "a\x1b]0;evil\ab", "ab", "ab"},
		{"title with ST", "a\x1b]0;evil\x1b\\b", "ab", "ab"},
		{"clipboard", "a\x1b]52;c;ZXZpbA==\ab", "ab", "ab"},
		{"unfinished title", "a\x1b]0;evil\nb", "a\nb", "a\nb"},
		{"clear screen", "a\x1b[2Jb\x1b[1;1Hc", "abc", "abc"},
		{"colour", "\x1b[31mred\x1b[0m", "red", "\x1b[31mred\x1b[0m"},
		{"colour without an end", "\x1b[1;38:5:9mred", "red", "\x1b[1;38:5:9mred\x1b[0m"},
		{"eight bits", "a\u009b2Jb\u009d0;evil\u009cc", "abc", "abc"},
		{"bytes that are no text", "a\x9b2Jb", "a\ufffd2Jb", "a\ufffd2Jb"},
		{"DCS", "a\x1bP1;2|evil\x1b\\b", "ab", "ab"},
		{"reset", "a\x1bcb\x1b(0c", "abc", "abc"},
		{"controls", "a\b\b\x00\x7f\v\fb\a", "ab", "ab"},
		{"progress", "10 %\r50 %\r100 %\r\ndone", "100 %\ndone", "100 %\ndone"},
		{"reordering", "a\u202eb\u2066c", "abc", "abc"},
		{"at the end", "a\x1b", "a", "a"},
		{"private colour", "a\x1b[?31mb\x1b[>4mc", "abc", "abc"},
	} {
		if got := tty.Clean(tt.in); got != tt.plain {
			t.Errorf("%s: Clean(%q) = %q, want %q", tt.name, tt.in, got, tt.plain)
		}
		if got := tty.CleanColor(tt.in); got != tt.color {
			t.Errorf("%s: CleanColor(%q) = %q, want %q", tt.name, tt.in, got, tt.color)
		}
	}
}

// TestProgressTableAndQuestionsAreClean: nothing that users are shown acts on their terminal, wherever it comes from.
func TestProgressTableAndQuestionsAreClean(t *testing.T) {
	t.Parallel()
	const evil = "x\x1b]0;owned\a\x1b[2J\u009b1;1H"
	s, out := streams("1\n")
	p := s.Progress()
	p.Stage(evil)
	p.Note(evil)
	p.Line(evil)
	p.Stop(true)
	table := tty.Table{Header: []string{"a"}}
	table.Add(evil)
	if err := table.Write(out); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ask(t.Context(), tty.Question{Text: evil, Help: evil, Default: evil, Choices: []tty.Choice{{Label: evil, Help: evil, Value: "v"}}}); err != nil {
		t.Fatal(err)
	}
	if shown := out.String(); strings.ContainsAny(shown, "\x1b\a\u009b") || strings.Contains(shown, "owned") || strings.Count(shown, "x") < 6 {
		t.Errorf("shown: %q", shown)
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"", "a\x1b[31mb", "\x1b]0;t\a", "\x9b\x1b", "\u009d\u009c", "\r\n\r", "\x1bP\x1b\\", "\x1b[\x1b[m"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain := tty.Clean(text)
		for _, r := range plain {
			if r != '\n' && r != '\t' && (r < 0x20 || r >= 0x7f && r <= 0x9f) {
				t.Fatalf("Clean(%q) = %q holds %q", text, plain, r)
			}
		}
		if !utf8.ValidString(plain) || tty.Clean(plain) != plain {
			t.Fatalf("Clean(%q) = %q is not clean", text, plain)
		}
		colored := tty.CleanColor(text)
		if tty.Clean(colored) != plain {
			t.Fatalf("CleanColor(%q) = %q, without colours %q, want %q", text, colored, tty.Clean(colored), plain)
		}
		if again := tty.CleanColor(colored); again != colored {
			t.Fatalf("CleanColor(%q) = %q, cleaned again %q", text, colored, again)
		}
	})
}

// TestCleaning: what commands print is cleaned, and what the user asked for unchanged is not.
func TestCleaning(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := tty.Cleaning(&out)
	const text = "a\x1b]52;c;ZXZpbA==\ab\x1b[31mred\x1b[0m\r\n"
	if n, err := w.Write([]byte(text)); n != len(text) || err != nil || out.String() != "ab\x1b[31mred\x1b[0m\r\n" {
		t.Errorf("wrote %d, %v: %q", n, err, &out)
	}
	if tty.Raw(w) != io.Writer(&out) || tty.Raw(&out) != io.Writer(&out) {
		t.Error("Raw is not the writer below")
	}
	if s := tty.Std(false); tty.Raw(s.Out) != os.Stdout || s.Out == os.Stdout || tty.Raw(s.Err) != os.Stderr || s.Err == os.Stderr {
		t.Error("the standard streams are not cleaned")
	}
	if got, want := tty.EscapeJSON("\"grüße\u009b2J\u202e\x7f\""), `"grüße\u009b2J\u202e\u007f"`; got != want {
		t.Errorf("EscapeJSON: got %s, want %s", got, want)
	}
}
