// Package packaging_test checks what distributions and administrators install.
package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
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
	name = strings.Replace(name, "@.", "@ada.", 1)
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

// connectUnit is a template, with a user as the instance.
const connectUnit = "coder-connect@.service"

// dropIn gives each job of the provisioner an account of its own.
const dropIn = "account-per-job.conf"

// The services have no rights that they do not use. systemd counts root, and the capabilities that it takes to give each job an account of
// its own, as exposure: operators add them with a drop-in.
func TestExposure(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]float64{
		"codermesh.service": 3.0, "codermesh-provisionerd.service": 3.0, dropIn: 3.8, connectUnit: 3.0,
	} {
		unit := read(t, name)
		if name == dropIn {
			name, unit = "codermesh-provisionerd.service", withDropIn(t)
		}
		if got := exposure(t, name, unit); got > most {
			t.Errorf("%s has an exposure of %v, want at most %v: see systemd-analyze security --offline=yes packaging/%s", name, got, most, name)
		}
		bare, _, _ := strings.Cut(unit, "NoNewPrivileges=")
		if got := exposure(t, name, bare); got < 8 {
			t.Errorf("%s without its restrictions has an exposure of %v: this test does not notice them", name, got)
		}
	}
}

// TestExposureHasAFloor: what is left of the exposure with an account per job is its work. With each setting that would take something else
// away (compilers at run time and debuggers in workspaces, numbers of the machine, a view of other files), it would still be far above that
// of the server.
func TestExposureHasAFloor(t *testing.T) {
	t.Parallel()
	const name = "codermesh-provisionerd.service"
	now := withDropIn(t)
	unit := now + "MemoryDenyWriteExecute=yes\nProcSubset=pid\nRootDirectory=/x\nUMask=0077\nSystemCallFilter=~@debug\n"
	if got, now := exposure(t, name, unit), exposure(t, name, now); got < 3.5 || got >= now {
		t.Errorf("the exposure would be %v, and is %v: if a smaller one is possible now, say so in docs/install.md, and set it", got, now)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("*.service")
	daemons := slices.DeleteFunc(units, func(name string) bool { return name == connectUnit })
	if err != nil || len(daemons) != 2 {
		t.Fatalf("units: %q, %v, want two and %s", daemons, err, connectUnit)
	}
	for _, name := range daemons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unit := read(t, name)
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

// The connection of a user starts as root, which makes a device, and has no right that this does not need.
func TestConnectUnit(t *testing.T) {
	t.Parallel()
	unit := read(t, connectUnit)
	if found := verify(t, connectUnit, unit); found != "" {
		t.Errorf("systemd objects:\n%s", found)
	}
	bad := strings.Replace(unit, "\nRuntimeDirectory=", "\nRuntimeDirectory=/run/", 1)
	if found := verify(t, connectUnit, bad); found == "" {
		t.Error("a bad RuntimeDirectory was accepted")
	}
	for name, want := range map[string]string{
		"ExecStart": installed + " connect up --foreground --user %i", "NoNewPrivileges": "yes", "RuntimeDirectory": "coder-connect",
		"RuntimeDirectoryPreserve": "yes", // what a killed one has left is described there
	} {
		if got := setting(unit, name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
}

// The README names the service instead of repeating its unit.
func TestReadmeNamesTheService(t *testing.T) {
	t.Parallel()
	if readme := read(t, "../README.md"); !strings.Contains(readme, "systemctl enable --now codermesh\n") || strings.Contains(readme, "[Service]") {
		t.Error("README.md must start the service codermesh and hold no unit of its own")
	}
}

// The provisioner's unit gives its user files and nothing else, and the drop-in changes what root needs and nothing else.
func TestAccountPerJob(t *testing.T) {
	t.Parallel()
	unit, conf := read(t, "codermesh-provisionerd.service"), read(t, dropIn)
	for name, want := range map[string]string{"User": "codermesh-provisionerd", "Group": "codermesh-provisionerd", "CapabilityBoundingSet": "", "PrivateUsers": "yes"} {
		if got := setting(unit, name); got != want || !strings.Contains(unit, "\n"+name+"=") {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	if strings.Contains(unit, "AmbientCapabilities") || strings.Contains(unit, "\nDynamicUser") {
		t.Error("the unit gives its user more than files")
	}
	if found := verify(t, "codermesh-provisionerd.service", withDropIn(t)); found != "" {
		t.Errorf("systemd objects to the drop-in:\n%s", found)
	}
	// In a drop-in, a list continues the unit's, unless an empty value comes first.
	for _, list := range []string{"StateDirectory", "CacheDirectory", "RestrictNamespaces"} {
		if !strings.Contains(conf, "\n"+list+"=\n"+list+"=") {
			t.Errorf("the drop-in continues %s= of the unit", list)
		}
	}
	for _, own := range []string{"StateDirectory", "CacheDirectory"} {
		if got := setting(unit, own); got != "codermesh-provisionerd" || strings.Contains(conf, "="+got+"\n") {
			t.Errorf("%s=%s, want a folder that the drop-in does not use", own, got)
		}
	}
	root := map[string]bool{}
	for _, name := range strings.Fields(`User Group StateDirectory Environment WorkingDirectory CacheDirectory CacheDirectoryMode UMask
		PrivateUsers CapabilityBoundingSet LimitNPROC RestrictNamespaces ProtectKernelTunables ProtectKernelLogs`) {
		root[name] = true
	}
	for line := range strings.Lines(conf) {
		if name, _, ok := strings.Cut(line, "="); ok && line[0] != '#' && !root[name] {
			t.Errorf("the drop-in sets %s=, which is not about root", name)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// withDropIn returns the provisioner's unit as systemd reads it where the drop-in is installed.
func withDropIn(t *testing.T) string {
	t.Helper()
	return read(t, "codermesh-provisionerd.service") + "\n" + read(t, dropIn)
}

// setting returns the value of a setting of a unit, "" if there is none.
func setting(unit, name string) string {
	_, rest, _ := strings.Cut(unit, "\n"+name+"=")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
