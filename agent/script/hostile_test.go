//go:build linux

package script_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/logship"
	"github.com/codermesh/codermesh/v2/agent/script"
)

// processesOf returns the processes whose command line contains a text, without zombies.
func processesOf(t *testing.T, text string) (pids []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(text)) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// TestForksForEver checks that processes that repeatedly fork and exit do not escape the end of their script.
func TestForksForEver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := script.Script{ID: uuid.New(), Text: "f() { (f) & }\nf; f; f; f\nexec sleep 3600", Timeout: 500 * time.Millisecond}
	result := f.Run(t.Context(), s, f.env)
	if !result.TimedOut {
		t.Errorf("result: %+v, want it to run out of time", result)
	}
	if left := processesOf(t, s.ID.String()); len(left) > 0 {
		t.Errorf("%d processes are left: %v", len(left), left)
	}
}

// TestBulkPrintsAGigabyte checks that a gigabyte of output costs neither memory nor disk, and its readers do not slow the script down.
func TestBulkPrintsAGigabyte(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	queue := logship.New() // without a sender every line waits
	s := script.Script{ID: uuid.New(), Text: "line=$(head -c 2000 /dev/zero | tr '\\0' x)\nyes $line | head -c 1000000000\necho; echo done"}
	s.Output = queue.Source(uuid.New()).Writer(logship.Info)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result := f.Run(t.Context(), s, f.env)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if !result.OK() {
		t.Errorf("result: %+v", result)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d bytes are held", grown)
	}
	logs, err := filepath.Glob(filepath.Join(f.dir, "log", "*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("log files: %v, %v", logs, err)
	}
	info, err := os.Stat(logs[0])
	if err != nil || info.Size() > 65<<20 {
		t.Errorf("the log file has %d bytes, %v", info.Size(), err)
	}
	out, err := f.Output(t.Context(), script.Script{ID: uuid.New(), Text: strings.TrimSuffix(s.Text, "\necho; echo done")}, f.env, 100)
	if err != nil || len(out) != 100 {
		t.Errorf("output for a value: %d bytes, %v", len(out), err)
	}
}
