package printable_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
)

func TestLineIsCut(t *testing.T) {
	t.Parallel()
	got := printable.Line(strings.Repeat("ä", 1<<19))
	if len(got) > printable.MaxLine+100 || !utf8.ValidString(got) || !strings.Contains(got, "the line has 1048576 bytes") {
		t.Errorf("a line of 1 MB became %d bytes: …%s", len(got), got[max(0, len(got)-60):])
	}
	if got := printable.Line("a\x00b\xff\r"); got != "ab\uFFFD" {
		t.Errorf("Line = %q", got)
	}
}

func TestLineForTerminals(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"\x1b[31mred\x1b[0m":                     "red",
		"\x1b]0;title\x07a\x1b]52;c;eA==\x1b\\b": "ab",
		"\u009b2Ja\u009d0;t\u009cb":              "ab",
		"\x1bPq\x1b\\a\x1b(Bb\x1bcc":             "abc",
		"a\tb\x08\x7f\x07\u0085c":                "a\tbc",
		"10%\r100%":                              "100%",
		"\x1b]unfinished":                        "",
		"\x9b31m":                                "\uFFFD31m",
		"größe → 1\n2":                           "größe → 1\n2",
	} {
		if got := printable.Line(line); got != want {
			t.Errorf("Line(%q) = %q, want %q", line, got, want)
		}
	}
	if got, want := printable.LogLine("\x1b]0;title\x07\x1b[31mred\x1b[2J"), "\x1b[31mred\x1b[0m"; got != want {
		t.Errorf("a line of a log: %q, want its colour alone: %q", got, want)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("\x1b]0;title\x07a\x1b[1mb\u009bK")
	f.Add("\x1b\x1b[[mm")
	f.Fuzz(func(t *testing.T, line string) {
		got := printable.Line(line)
		if strings.ContainsFunc(got, func(r rune) bool { return r != '\t' && r != '\n' && unicode.IsControl(r) }) || !utf8.ValidString(got) {
			t.Errorf("Line(%q) = %q", line, got)
		}
	})
}

func TestUUID(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"0123456789abcdef": "30313233-3435-3637-3839-616263646566", "": "", "0123456789abcde": "", "0123456789abcdef0": "",
	} {
		if got := printable.UUID([]byte(raw)); got != want {
			t.Errorf("UUID(%q) = %q, want %q", raw, got, want)
		}
	}
}
