package form

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseValues(t *testing.T) {
	t.Parallel()
	got, err := ParseValues([]byte(`# a file
---
region: eu-west-1   # trailing
size: "4 \"cores\""
single: 'it''s'
url: https://example.com/#top
empty:
tools: ["git", "vim"]
groups:
  - admin
  - "o ps"
flag: true
version: 1.20
off: no
numbers: [80, 443]
"quoted name": x
text: |
  two
  lines
folded: >-
  one
  line
nothing: ~
nested:
  a: 1
  b: [x, null]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"region": "eu-west-1", "size": `4 "cores"`, "single": "it's", "url": "https://example.com/#top", "empty": "",
		"tools": `["git","vim"]`, "groups": `["admin","o ps"]`, "flag": "true",
		"version": "1.20", "off": "no", "numbers": `["80","443"]`, "quoted name": "x", "text": "two\nlines\n", "folded": "one line", "nothing": "",
		"nested": `{"a":"1","b":["x",null]}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err = ParseValues([]byte(`{"a": "x", "n": 12345678901234567890, "l": ["p", "q"], "b": false, "z": null}`))
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]string{"a": "x", "n": "12345678901234567890", "l": `["p","q"]`, "b": "false", "z": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	if got, err = ParseValues([]byte(" # only a comment\n")); err != nil || len(got) != 0 {
		t.Errorf("an empty file: got %v, %v", got, err)
	}
	for _, tt := range []struct{ bad, want string }{
		{"a", "line 1: it must hold names with values"}, {"a:b", "line 1: it must hold names with values"}, {"- x", "line 1: it must hold names with values"},
		{"a: \"x", "line 1"}, {"a: 'x' y", "line 1"}, {"b: 1\na: 1\na: 2", `line 3: "a" is there twice`}, {"a: {b: 1, b: 2}", `line 1: "b" is there twice`},
		{"{", "JSON"}, {`{"a":`, "JSON"}, {"a: 1\n  b: 2", "line 2"}, {"a: &x 1\nb: *x", "line 2: aliases are not read"},
		{"a: !!binary eHg=", "line 1: a value of the type !!binary is not read"}, {"a: 1\n---\nb: 2", "line 2: it must hold one document"},
		{"? [a]\n: 1", "line 1: a name must be plain text"},
	} {
		if got, err := ParseValues([]byte(tt.bad)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, %v, want an error with %q", tt.bad, got, err, tt.want)
		}
	}
}

func FuzzParseValues(f *testing.F) {
	for _, seed := range []string{"a: b", "a:\n  - b\n", `{"a":1}`, "a: 'b''c'", "a: [\"x\"] # c", "a: {b: [~, !!str 1]}", "a: &x [*x]", "a: |\n  b", "? a\n: b", "a: 1\n---\nb: 2", "<<: {a: b}", "\ufeffa: b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := ParseValues(data)
		if err == nil && values == nil {
			t.Error("neither values nor an error")
		}
		for name, value := range values {
			if !utf8.ValidString(name) || !utf8.ValidString(value) {
				t.Errorf("%q gives %q: %q, which is not text", data, name, value)
			}
		}
	})
}
