//go:build linux

package ports

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListening(t *testing.T) {
	t.Parallel()
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := net.Listen(network, ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got, err := Listening()
		if err != nil {
			t.Fatal(err)
		}
		want := Port{strings.TrimSpace(string(comm)), "tcp", uint16(l.Addr().(*net.TCPAddr).Port)}
		if !slices.Contains(got, want) {
			t.Errorf("%s: %v is not among %v", network, want, got)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	got := map[uint64]socket{}
	err := parse(strings.NewReader(`  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1
   2: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 13 1
   3: 0202000A:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 14 1
   4: 00000000000000000000000001000000:1F93 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 15 1
   5: 0000000000000000FFFF00000100007F:1F94 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 16 1
`), got)
	if diff := cmp.Diff(map[uint64]socket{11: {8080, 1000}, 12: {22, 0}, 15: {8083, 1000}, 16: {8084, 1000}}, got, cmp.AllowUnexported(socket{})); diff != "" || err != nil {
		t.Errorf("inodes (-want +got), %v:\n%s", err, diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0  1000        0 11 1\n")
	f.Fuzz(func(t *testing.T, table string) {
		got := map[uint64]socket{}
		_ = parse(strings.NewReader(table), got) // a line may be too long
		for _, s := range got {
			if s.port == 0 {
				t.Error("port 0")
			}
		}
	})
}

// The folder is as /proc in a workspace that shares its host's network: it has the workspace's programs and the host's sockets.
func TestPortsOfOthersAreLeftOut(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(proc, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	row := func(port, account, inode int) string {
		return fmt.Sprintf("0: 0100007F:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000 %d 0 %d 1\n", port, account, inode)
	}
	// 8080: a program of this account; 5432: a service of the workspace; 9090: the host's; 7070: of this account, which cannot be inspected.
	write("net/tcp", row(8080, 1000, 11)+row(5432, 70, 12)+row(9090, 0, 13)+row(7070, 1000, 14))
	write("21/status", "Name:\tweb\nUid:\t1000\t1000\t1000\t1000\n")
	write("21/comm", "web\n")
	write("21/fd/0", "")
	if err := os.Symlink("socket:[11]", filepath.Join(proc, "21/fd/3")); err != nil {
		t.Fatal(err)
	}
	write("22/status", "Name:\tpostgres\nUid:\t0\t70\t70\t70\n")
	write("self/status", "Uid:\t0\t0\t0\t0\n") // not a process
	got, err := listening(proc)
	if err != nil {
		t.Fatal(err)
	}
	want := []Port{{"", "tcp", 5432}, {"", "tcp", 7070}, {"web", "tcp", 8080}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func FuzzEffectiveAccount(f *testing.F) {
	f.Add("Name:\tsh\nUid:\t0\t70\t70\t70\n")
	f.Add("Uid:\t1\n")
	f.Fuzz(func(t *testing.T, status string) {
		if _, ok := effectiveAccount(status); ok && !strings.Contains(status, "Uid:") {
			t.Error("an account without its line")
		}
	})
}
