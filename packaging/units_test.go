// Package packaging_test checks what distributions and administrators install.
package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const installed = "/usr/bin/coder" // where the units expect the program

// verify returns what systemd finds wrong with a unit, "" for nothing.
func verify(t *testing.T, name, text string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, installed, program)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", path).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatalf("systemd-analyze verify: %v: install systemd, or run scripts/test-prerequisites", err)
	}
	return string(out)
}

// exposure returns what systemd-analyze says about the confinement of a unit: from 0, the best, to 10.
func exposure(t *testing.T, name, text string) float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--no-pager", "--offline=yes", path).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	_, end, _ := strings.Cut(string(out), "Overall exposure level for "+name+":")
	words := strings.Fields(end)
	if len(words) == 0 {
		t.Fatalf("systemd-analyze security named no level:\n%s", out)
	}
	level, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return level
}

// The services have no rights that they do not use. systemd counts root, and the capabilities that it takes to give each job an account of
// its own, as exposure: the provisioner without root does without them, and all its jobs share an account.
func TestExposure(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]float64{"codermesh.service": 3.0, "codermesh-provisionerd-rootless.service": 3.0, "codermesh-provisionerd.service": 3.8} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := exposure(t, name, string(data)); got > most {
			t.Errorf("%s has an exposure of %v, want at most %v: see systemd-analyze security --offline=yes packaging/%s", name, got, most, name)
		}
		bare, _, _ := strings.Cut(string(data), "NoNewPrivileges=")
		if got := exposure(t, name, bare); got < 8 {
			t.Errorf("%s without its restrictions has an exposure of %v: this test does not notice them", name, got)
		}
	}
}

// TestExposureHasAFloor: what is left of the provisioner's exposure is its work. With each setting that would take something else away (compilers
// at run time and debuggers in workspaces, numbers of the machine, a view of other files), it would still be far above that of the server.
func TestExposureHasAFloor(t *testing.T) {
	t.Parallel()
	const name = "codermesh-provisionerd.service"
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	unit := strings.Replace(string(data), "\nSystemCallFilter=~", "\nMemoryDenyWriteExecute=yes\nProcSubset=pid\nRootDirectory=/x\nUMask=0077\nSystemCallFilter=~@debug ", 1)
	if got, now := exposure(t, name, unit), exposure(t, name, string(data)); got < 3.5 || got >= now {
		t.Errorf("the exposure would be %v, and is %v: if a smaller one is possible now, say so in docs/install.md, and set it", got, now)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) != 3 {
		t.Fatalf("units: %q, %v, want three", units, err)
	}
	for _, name := range units {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			unit := string(data)
			if found := verify(t, name, unit); found != "" {
				t.Errorf("systemd objects:\n%s", found)
			}
			for _, want := range []string{"ExecStart=" + installed + " ", "\nStateDirectory=", "\nCacheDirectory=", "\nEnvironment=CODER_CONFIG_DIR=/var/lib/"} {
				if !strings.Contains(unit, want) {
					t.Errorf("%s lacks %q", name, strings.TrimSpace(want))
				}
			}
			// The check above must be able to fail: this is a mistake that a unit of ours had.
			bad := strings.Replace(unit, "\nEnvironmentFile=", "\nEnvironmentFile=etc/coder.env  # ", 1)
			if found := verify(t, name, bad); !strings.Contains(found, "not absolute") {
				t.Errorf("a bad EnvironmentFile was accepted: %q", found)
			}
		})
	}
}

// The README names the service instead of repeating its unit.
func TestReadmeNamesTheService(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "systemctl enable --now codermesh\n") || strings.Contains(string(data), "[Service]") {
		t.Error("README.md must start the service codermesh and hold no unit of its own")
	}
}

// The two provisioners are one service in two setups: what is not about root is the same in both.
func TestRootlessProvisioner(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	root, rootless := read("codermesh-provisionerd.service"), read("codermesh-provisionerd-rootless.service")
	for _, same := range []string{"EnvironmentFile", "ExecStart", "Restart", "RestartSec", "KillMode", "TimeoutStopSec", "Delegate", "NoNewPrivileges", "PrivateIPC", "WantedBy"} {
		if got, want := setting(rootless, same), setting(root, same); got != want || want == "" {
			t.Errorf("%s=%s, and %s in the unit with root", same, got, want)
		}
	}
	if diff := cmp.Diff(filters(root), filters(rootless)); diff != "" {
		t.Errorf("system calls (-root +rootless):\n%s", diff)
	}
	for name, want := range map[string]string{"User": "codermesh-provisionerd", "Group": "codermesh-provisionerd", "CapabilityBoundingSet": "", "Conflicts": "codermesh-provisionerd.service"} {
		if got := setting(rootless, name); got != want || !strings.Contains(rootless, "\n"+name+"=") {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	if strings.Contains(rootless, "AmbientCapabilities") || strings.Contains(rootless, "\nDynamicUser") {
		t.Error("the unit gives its user more than files")
	}
	for _, own := range []string{"StateDirectory", "CacheDirectory"} {
		if got := setting(rootless, own); got != "codermesh-provisionerd-rootless" || strings.Contains(" "+setting(root, own)+" ", " "+got+" ") {
			t.Errorf("%s=%s, want a folder of its own", own, got)
		}
	}
}

// filters returns the system calls that a unit denies, one line of it each.
func filters(unit string) (denied []string) {
	for line := range strings.Lines(unit) {
		if calls, ok := strings.CutPrefix(line, "SystemCallFilter=~"); ok {
			denied = append(denied, strings.TrimSpace(calls))
		}
	}
	return denied
}

// setting returns the value of a setting of a unit, "" if there is none.
func setting(unit, name string) string {
	_, rest, _ := strings.Cut(unit, "\n"+name+"=")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
