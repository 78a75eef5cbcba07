// The suite command reports on test runs: which packages and tests took longest, what was skipped and why, what failed
// tests said, and how to run them again.
//
//	go tool gotestsum --jsonfile build/test/race.json -- -race ./...
//	suite build/test/race.json
//
// Its arguments are logs in the format of `go test -json`. A log whose name begins with "race" is of a run with the
// race detector.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gotest.tools/gotestsum/testjson"
)

const (
	module     = "github.com/codermesh/codermesh/v2/"
	slowTest   = 5 * time.Second
	manySlowly = 10 // packages

	// A failed test says at most so many lines, of so many bytes: the report is what is read first, also where only
	// the end of a log is kept. Logs of processes, which follow what the test itself says, would fill it.
	linesOfFailed, lineOfFailed = 12, 400
)

func main() {
	logs := flag.String("logs", "", "folder with the logs of failed tests' processes, named in the report if it exists")
	flag.Parse()
	if err := report(os.Stdout, flag.Args(), *logs); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

// report writes the report on the runs that files log. Files that do not exist are of runs that did not begin.
func report(w io.Writer, files []string, logs string) error {
	var packages []*run
	for _, name := range files {
		file, err := os.Open(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		found, err := read(file, strings.HasPrefix(filepath.Base(name), "race"))
		file.Close()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		packages = append(packages, found...)
	}
	slices.SortStableFunc(packages, func(a, b *run) int { return cmp.Compare(b.took, a.took) })
	printSlow(w, packages)
	printSkipped(w, packages)
	printFailed(w, packages, logs)
	return nil
}

// run is one run of a package's tests.
type run struct {
	name    string // in the module, such as coderd/users
	race    bool
	took    time.Duration
	tests   []testjson.TestCase // that ended
	skipped []skip
	failed  []failure // tests; empty if the package as a whole failed
	broken  bool      // the package failed
	said    []string  // by a broken package outside of its tests
}

type failure struct {
	test string
	said []string // by the test, or by what it runs
}

type skip struct{ test, reason string }

// read reads the log of a run.
func read(log io.Reader, race bool) ([]*run, error) {
	all, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: log, IgnoreNonJSONOutputLines: true,
		Handler: silent{}})
	if err != nil {
		return nil, err
	}
	var runs []*run
	for _, name := range all.Packages() {
		p := all.Package(name)
		r := &run{name: strings.TrimPrefix(name, module), race: race, took: p.Elapsed(), tests: p.TestCases(),
			broken: p.Result() == testjson.ActionFail}
		for _, t := range p.Skipped {
			r.skipped = append(r.skipped, skip{string(t.Test), reason(p.OutputLines(t))})
		}
		if r.broken {
			r.said = said(p.OutputLines(testjson.TestCase{}))
		}
		for _, t := range p.Failed {
			if t.Test != "" {
				r.failed = append(r.failed, failure{string(t.Test), said(p.OutputLines(t))})
			}
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// silent ignores the events: gotestsum has shown them.
type silent struct{}

func (silent) Event(testjson.TestEvent, *testjson.Execution) error { return nil }
func (silent) Err(string) error                                    { return nil }

// reason returns what a skipped test printed.
func reason(lines []string) string {
	for _, line := range lines {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), "_test.go:"); ok {
			_, text, _ = strings.Cut(text, ": ")
			return text
		}
	}
	return "no reason given"
}

// said returns the beginning of what a failed test printed.
func said(output []string) (lines []string) {
	for _, line := range output {
		line = strings.TrimRight(line, " \n")
		word := strings.TrimSpace(line)
		if word == "" || strings.HasPrefix(word, "=== ") || strings.HasPrefix(word, "--- ") { // go test's own
			continue
		}
		if len(lines) == linesOfFailed {
			return append(lines, "…")
		}
		if len(line) > lineOfFailed {
			line = strings.ToValidUTF8(line[:lineOfFailed], "") + "…"
		}
		lines = append(lines, line)
	}
	return lines
}

func (r *run) title() string {
	if r.race {
		return r.name + " (race)"
	}
	return r.name
}

func printSlow(w io.Writer, packages []*run) {
	fmt.Fprintln(w, "\nThe packages that took longest:")
	for _, p := range packages[:min(manySlowly, len(packages))] {
		fmt.Fprintf(w, "%8.1f s  %s\n", p.took.Seconds(), p.title())
	}
	type slow struct {
		took time.Duration
		name string
	}
	var tests []slow
	for _, p := range packages {
		for _, t := range p.tests {
			if t.Elapsed >= slowTest {
				tests = append(tests, slow{t.Elapsed, p.title() + " " + string(t.Test)})
			}
		}
	}
	if len(tests) == 0 {
		return
	}
	slices.SortStableFunc(tests, func(a, b slow) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(w, "\nTests over %s:\n", slowTest)
	for _, t := range tests {
		fmt.Fprintf(w, "%8.1f s  %s\n", t.took.Seconds(), t.name)
	}
}

func printSkipped(w io.Writer, packages []*run) {
	first := true
	for _, p := range packages {
		for _, s := range p.skipped {
			if first {
				fmt.Fprintln(w, "\nSkipped:")
			}
			first = false
			fmt.Fprintf(w, "  %s %s: %s\n", p.title(), s.test, s.reason)
		}
	}
}

func printFailed(w io.Writer, packages []*run, logs string) {
	var failed []*run
	for _, p := range packages {
		if p.broken || len(p.failed) > 0 {
			failed = append(failed, p)
		}
	}
	if len(failed) == 0 {
		fmt.Fprintln(w, "\nAll Go tests passed.")
		return
	}
	fmt.Fprintln(w, "\nFailed:")
	for _, p := range failed {
		if len(p.failed) == 0 {
			fmt.Fprintf(w, "  %s\n", p.title())
			printLines(w, p.said)
		}
		for _, t := range p.failed {
			fmt.Fprintf(w, "  %s %s\n", p.title(), t.test)
			printLines(w, t.said)
		}
	}
	fmt.Fprintln(w, "\nTo run them again:")
	for _, race := range []bool{true, false} {
		if line := again(failed, race); line != "" {
			fmt.Fprintln(w, " ", line)
		}
	}
	if found, err := os.ReadDir(logs); err == nil && len(found) > 0 {
		fmt.Fprintf(w, "The logs of their processes are in %s.\n", logs)
	}
}

func printLines(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(w, "      %s\n", line)
	}
}

// again returns the command that runs failed tests again, or "".
func again(failed []*run, race bool) string {
	var folders, tests []string
	whole := false
	for _, p := range failed {
		if p.race != race {
			continue
		}
		folders = append(folders, "./"+p.name)
		whole = whole || len(p.failed) == 0
		for _, t := range p.failed {
			top, _, _ := strings.Cut(t.test, "/")
			tests = append(tests, top)
		}
	}
	if len(folders) == 0 {
		return ""
	}
	line := "make test-only PKG='" + strings.Join(folders, " ") + "'"
	if !whole {
		slices.Sort(tests)
		line += " RUN='^(" + strings.Join(slices.Compact(tests), "|") + ")$$'"
	}
	if race {
		line += " RACE=-race"
	}
	return line
}
