package ports

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/winetest"
)

func TestListening(t *testing.T) {
	t.Parallel()
	self := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	if winetest.In() {
		self = "" // Wine 8 does not know which process has a socket
	}
	if got := programName(uint32(os.Getpid())); got != strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") {
		t.Errorf("this program is called %q", got)
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
		want := Port{self, "tcp", uint16(l.Addr().(*net.TCPAddr).Port)}
		if !slices.Contains(got, want) {
			t.Errorf("%s: %v is not among %v", network, want, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(append([]byte{1, 0, 0, 0}, make([]byte, 24)...), false)
	f.Fuzz(func(t *testing.T, table []byte, six bool) {
		l := layouts[0]
		if six {
			l = layouts[1]
		}
		if got := parse(table, l); len(got) > len(table)/l.row {
			t.Errorf("%d ports in %d bytes", len(got), len(table))
		}
	})
}
