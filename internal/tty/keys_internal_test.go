package tty

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseAll returns the keys of input and what is left of it.
func parseAll(input string) (keys []key, rest string) {
	for {
		k, size := parseKey([]byte(input))
		if size == 0 {
			return keys, input
		}
		if input = input[size:]; k != 0 {
			keys = append(keys, k)
		}
	}
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]struct {
		keys []key
		rest string
	}{
		"":                                  {},
		"aß開":                               {[]key{'a', 'ß', '開'}, ""},
		"\x1b[A\x1b[B\x1bOA\x1bOB":          {[]key{keyUp, keyDown, keyUp, keyDown}, ""},
		"\x10\x0e\x15\x7f\b\r\n\x03\x04":    {[]key{keyUp, keyDown, keyClear, keyErase, keyErase, keyEnter, keyEnter, keyInterrupt, keyEnd}, ""},
		"\x1b[5~\x1b[6~\x1b[H\x1b[4~":       {[]key{keyPageUp, keyPageDown, keyFirst, keyLast}, ""},
		"\x1b[1;5A\x1b[200~x\x1b[24~\x1bOP": {[]key{'x'}, ""}, // with Ctrl, a paste, F12, F1
		"\x1bx":                             {[]key{'x'}, ""},
		"a\x1b":                             {[]key{'a'}, "\x1b"},
		"\x1b[1;":                           {nil, "\x1b[1;"},
		"\xe9\x96":                          {nil, "\xe9\x96"},
		"\xff\x00\u009ba":                   {[]key{'a'}, ""},
	} {
		keys, rest := parseAll(input)
		if diff := cmp.Diff(want.keys, keys); diff != "" || rest != want.rest {
			t.Errorf("%q: rest %q, want %q; keys (-want +got):\n%s", input, rest, want.rest, diff)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"", "a", "\x1b[A", "\x1b[1;5A", "\x1bO", "\xe9\x96\x8b", "\x1b\x1b[B", "\x1b[111111111111111111111111111111111111"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		keys, rest := parseAll(input)
		if len(keys)+len(rest) > len(input) || len(rest) > maxSequence {
			t.Fatalf("%q: %d keys, rest %q", input, len(keys), rest)
		}
		for _, k := range keys {
			if k > 0 && control(rune(k)) {
				t.Fatalf("%q: the character %U", input, rune(k))
			}
		}
	})
}
