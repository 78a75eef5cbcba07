package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// events is a log with a slow test, a skipped one, and two that failed.
const events = `{"Action":"start","Package":"github.com/codermesh/codermesh/v2/coderd"}
{"Action":"run","Package":"github.com/codermesh/codermesh/v2/coderd","Test":"TestSlow"}
{"Action":"pass","Package":"github.com/codermesh/codermesh/v2/coderd","Test":"TestSlow","Elapsed":6.5}
{"Action":"run","Package":"github.com/codermesh/codermesh/v2/coderd","Test":"TestQuick"}
{"Action":"pass","Package":"github.com/codermesh/codermesh/v2/coderd","Test":"TestQuick","Elapsed":0.1}
{"Action":"run","Package":"github.com/codermesh/codermesh/v2/coderd","Test":"TestSkipped"}
{"Action":"output","Package":"github.com/codermesh/codermesh/v2/coderd","Test":"TestSkipped","Output":"    coderd_test.go:12: requires root: it makes accounts\n"}
{"Action":"skip","Package":"github.com/codermesh/codermesh/v2/coderd","Test":"TestSkipped","Elapsed":0}
{"Action":"pass","Package":"github.com/codermesh/codermesh/v2/coderd","Elapsed":7.25}
`

const failures = `{"Action":"start","Package":"github.com/codermesh/codermesh/v2/e2e"}
{"Action":"run","Package":"github.com/codermesh/codermesh/v2/e2e","Test":"TestLab"}
{"Action":"run","Package":"github.com/codermesh/codermesh/v2/e2e","Test":"TestLab/path/lax"}
{"Action":"output","Package":"github.com/codermesh/codermesh/v2/e2e","Test":"TestLab/path/lax","Output":"=== RUN   TestLab/path/lax\n"}
{"Action":"output","Package":"github.com/codermesh/codermesh/v2/e2e","Test":"TestLab/path/lax","Output":"    lab_test.go:12: relayed\n"}
{"Action":"fail","Package":"github.com/codermesh/codermesh/v2/e2e","Test":"TestLab/path/lax","Elapsed":2}
{"Action":"fail","Package":"github.com/codermesh/codermesh/v2/e2e","Test":"TestLab","Elapsed":3}
{"Action":"fail","Package":"github.com/codermesh/codermesh/v2/e2e","Elapsed":9}
{"Action":"start","Package":"github.com/codermesh/codermesh/v2/sshmux"}
{"Action":"output","Package":"github.com/codermesh/codermesh/v2/sshmux","Output":"panic: x\n"}
{"Action":"fail","Package":"github.com/codermesh/codermesh/v2/sshmux","Elapsed":1}
`

func TestReport(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	for name, text := range map[string]string{"plain.json": events, "race.json": events + failures, "logs/TestLab/server.log": "x"} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name  string
		files []string
		want  []string
		not   []string
	}{
		{"passed", []string{"plain.json", "missing.json"}, []string{
			"     7.2 s  coderd\n", "Tests over 5s:\n     6.5 s  coderd TestSlow\n", "Skipped:\n  coderd TestSkipped: requires root: it makes accounts\n", "All Go tests passed.",
		}, []string{"TestQuick", "race", "again", "logs"}},
		{"failed", []string{"race.json"}, []string{
			"     9.0 s  e2e (race)\n", "Failed:\n  e2e (race) TestLab",
			"  e2e (race) TestLab/path/lax\n          lab_test.go:12: relayed\n  e2e", "  sshmux (race)\n      panic: x\n",
			"make test-only PKG='./e2e ./sshmux' RACE=-race\n", "The logs of their processes are in " + logs,
		}, []string{"All Go tests passed"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := make([]string, len(tc.files))
			for i, name := range tc.files {
				files[i] = filepath.Join(dir, name)
			}
			var out strings.Builder
			if err := report(&out, files, logs); err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the report lacks %q:\n%s", want, &out)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("the report has %q:\n%s", not, &out)
				}
			}
		})
	}
}

func TestAgain(t *testing.T) {
	failed := []*run{
		{name: "e2e", failed: []failure{{test: "TestLab/path/lax"}, {test: "TestLab"}, {test: "TestBackup"}}},
		{name: "agent", race: true, failed: []failure{{test: "TestFiles"}}},
	}
	for race, want := range map[bool]string{
		false: "make test-only PKG='./e2e' RUN='^(TestBackup|TestLab)$$'",
		true:  "make test-only PKG='./agent' RUN='^(TestFiles)$$' RACE=-race",
	} {
		if got := again(failed, race); got != want {
			t.Errorf("race %t: got %q, want %q", race, got, want)
		}
	}
}

func TestSaidIsShort(t *testing.T) {
	output := []string{"=== RUN   TestX\n", strings.Repeat("ä", 1000) + "\n"}
	for range 2 * linesOfFailed {
		output = append(output, "    x_test.go:1: wrong\n")
	}
	got := said(append(output, "--- FAIL: TestX (0.00s)\n"))
	if len(got) != linesOfFailed+1 || got[linesOfFailed] != "…" || len(got[0]) > lineOfFailed+len("…") || !strings.HasPrefix(got[0], "ää") {
		t.Errorf("got %d lines: %q", len(got), got)
	}
}
