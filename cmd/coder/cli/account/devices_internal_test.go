package account

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rsc.io/qr"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

// TestQR reads the modules back from the characters: light border, and those of the code.
func TestQR(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("PrivateKey = 0123456789\n", 13) // as long as a configuration
	var out bytes.Buffer
	if err := writeQR(&out, text); err != nil {
		t.Fatal(err)
	}
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	dark := map[rune][2]bool{' ': {}, '▀': {true, false}, '▄': {false, true}, '█': {true, true}}
	for row, line := range lines {
		inner, begins := strings.CutPrefix(line, "\x1b[38;5;16;48;5;231m")
		inner, ends := strings.CutSuffix(inner, "\x1b[0m")
		cells := []rune(inner)
		if !begins || !ends || len(cells) != code.Size+2*quietZone || len(cells) > 80 {
			t.Fatalf("line %d has %d columns: %q", row, len(cells), line)
		}
		for column, cell := range cells {
			for half, got := range dark[cell] {
				if x, y := column-quietZone, 2*row+half-quietZone; got != code.Black(x, y) {
					t.Errorf("module %d, %d is dark: %t", x, y, got)
				}
			}
		}
	}
	if want := (code.Size + 2*quietZone + 1) / 2; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	if err := writeQR(&out, strings.Repeat("x", 10_000)); err == nil {
		t.Error("a text that is too long has a code")
	}
}

// TestHostileGateway checks that a server cannot add lines to a configuration, which wg-quick reads as root: PostUp would run a program. Neither can
// it have the device send traffic through it that is not for the mesh.
func TestHostileGateway(t *testing.T) {
	t.Parallel()
	pair, err := wgquick.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	good := sdk.WireGuardGateway{Address: "wg.example.com:51820", PublicKey: pair.Public.String(), Prefix: "fd3b:8e1f:47c2::/48", DNS: "fd3b:8e1f:47c2::1", MTU: 1280}
	device := sdk.UserDevice{Address: "fd3b:8e1f:47c2::2"}
	if text, err := deviceConfig(good, device, pair); err != nil || !strings.Contains(text, "\nEndpoint = wg.example.com:51820\n") {
		t.Errorf("got %v\n%s", err, text)
	}
	const evil = "\nPostUp = reboot"
	for what, change := range map[string]func(*sdk.WireGuardGateway, *sdk.UserDevice){
		"address":                     func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Address += evil },
		"no address":                  func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Address = "" },
		"key":                         func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.PublicKey += evil },
		"prefix":                      func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Prefix += evil },
		"dns":                         func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.DNS += evil },
		"dns's zone":                  func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.DNS = "fe80::1%" + evil },
		"own":                         func(_ *sdk.WireGuardGateway, d *sdk.UserDevice) { d.Address += evil },
		"all of IPv6":                 func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Prefix = "::/0" },
		"all of IPv4":                 func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Prefix = "0.0.0.0/0" },
		"half of IPv6, with the mesh": func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Prefix = "8000::/1" },
		"all local addresses":         func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Prefix = "fc00::/7" },
		"a host as the mesh":          func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.Prefix = "fd3b:8e1f:47c2::1/48" },
		"a public network": func(g *sdk.WireGuardGateway, d *sdk.UserDevice) {
			g.Prefix, g.DNS, d.Address = "2001:db8::/48", "2001:db8::1", "2001:db8::2"
		},
		"a public name server": func(g *sdk.WireGuardGateway, _ *sdk.UserDevice) { g.DNS = "192.0.2.53" },
		"an address elsewhere": func(_ *sdk.WireGuardGateway, d *sdk.UserDevice) { d.Address = "192.0.2.1" },
		"own zone":             func(_ *sdk.WireGuardGateway, d *sdk.UserDevice) { d.Address = "fe80::1%" + evil },
	} {
		g, d := good, device
		change(&g, &d)
		if text, err := deviceConfig(g, d, pair); err == nil {
			t.Errorf("%s: got\n%s", what, text)
		}
	}
}

// TestNewPrivateFile checks that only its owner reads the file, and that a file that exists stays.
func TestNewPrivateFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wg0.conf")
	file, err := newPrivateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := newPrivateFile(path); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a second time: %v", err)
	}
}
