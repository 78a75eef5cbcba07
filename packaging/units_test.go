// Package packaging_test checks what distributions and administrators install.
package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
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

func TestUnits(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("units: %q, %v, want two", units, err)
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
