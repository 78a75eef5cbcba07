//go:build linux

package ports

import (
	"net"
	"os"
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
	got := map[uint64]uint16{}
	err := parse(strings.NewReader(`  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1
   2: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 13 1
   3: 0202000A:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 14 1
   4: 00000000000000000000000001000000:1F93 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 15 1
   5: 0000000000000000FFFF00000100007F:1F94 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 16 1
`), got)
	if diff := cmp.Diff(map[uint64]uint16{11: 8080, 12: 22, 15: 8083, 16: 8084}, got); diff != "" || err != nil {
		t.Errorf("inodes (-want +got), %v:\n%s", err, diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0  1000        0 11 1\n")
	f.Fuzz(func(t *testing.T, table string) {
		got := map[uint64]uint16{}
		_ = parse(strings.NewReader(table), got) // a line may be too long
		for _, port := range got {
			if port == 0 {
				t.Error("port 0")
			}
		}
	})
}
