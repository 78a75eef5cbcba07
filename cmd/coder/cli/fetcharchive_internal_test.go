//go:build unix

package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/archive"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// archiveSocket starts an agent that has archives: "broken" ends early the first time, "gone" is refused.
func archiveSocket(t *testing.T) (path string, asked *atomic.Int64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = archive.Serve(context.Background(), conn, func(_ context.Context, name string) (io.ReadCloser, int64, error) {
				n := asked.Add(1)
				size := int64(len(name))
				switch {
				case name == "gone":
					return nil, 0, archive.Refusal("there is none")
				case name == "broken" && n == 1:
					return nil, 0, errors.New("the server is away")
				case name == "huge":
					size = 4<<30 + 1
				}
				return io.NopCloser(strings.NewReader(name)), size, nil
			})
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path, asked
}

// TestFetchArchive checks that only the archive that was meant becomes a file.
func TestFetchArchive(t *testing.T) { // not parallel: the environment
	sumOf := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	for name, tc := range map[string]struct {
		archive, sum, before string
		want                 string // of the file, "" for none
		code                 fault.Code
		says                 string
		asked                int64
	}{
		"an archive":             {"tools", sumOf("tools"), "", "tools", "", "", 1},
		"in capitals":            {"tools", strings.ToUpper(sumOf("tools")), "", "tools", "", "", 1},
		"after an outage":        {"broken", sumOf("broken"), "", "broken", "", "", 2},
		"it is there":            {"tools", sumOf("tools"), "tools", "tools", "", "", 0},
		"another one is there":   {"tools", sumOf("tools"), "old", "tools", "", "", 1},
		"a changed archive":      {"tools", sumOf("other"), "old", "old", fault.Conflict, "is another one: its SHA-256 is " + sumOf("tools"), 1},
		"an absent archive":      {"gone", sumOf("gone"), "", "", fault.NotFound, "there is none", 1},
		"a huge archive":         {"huge", sumOf("huge"), "", "", fault.TooLarge, "larger than 4 GiB", 1},
		"a sum that is too long": {"tools", sumOf("tools") + "00", "", "", fault.Invalid, "64 hexadecimal digits", 0},
		"no sum":                 {"tools", "", "", "", fault.Invalid, "64 hexadecimal digits", 0},
	} {
		t.Run(name, func(t *testing.T) {
			socket, asked := archiveSocket(t)
			t.Setenv(archive.SocketEnv, socket)
			file := filepath.Join(t.TempDir(), "file")
			if tc.before != "" {
				if err := os.WriteFile(file, []byte(tc.before), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			r := run(t, "", "", "fetch-archive", tc.archive, "--sha256", tc.sum, "--file", file)
			if fault.CodeOf(r.fault) != tc.code || r.fault != nil && !strings.Contains(r.fault.Error(), tc.says) {
				t.Errorf("got %v, want %q", r.fault, tc.says)
			}
			got, err := os.ReadFile(file)
			if string(got) != tc.want || tc.want == "" && err == nil {
				t.Errorf("the file has %q, %v", got, err)
			}
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); err != nil || len(left) != 0 {
				t.Errorf("there are %q, %v", left, err)
			}
			if n := asked.Load(); n != tc.asked {
				t.Errorf("asked %d times, want %d", n, tc.asked)
			}
		})
	}
	t.Setenv(archive.SocketEnv, "")
	if r := run(t, "", "", "fetch-archive", "tools", "--sha256", sumOf("tools")); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("outside of a workspace: %v", r.fault)
	}
}
