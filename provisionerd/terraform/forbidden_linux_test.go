package terraform_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// confine makes an executor in folders below dir, and returns what keeps it from confining templates.
func confine(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	e, err := terraform.New(context.Background(), terraform.Options{
		CacheDir: filepath.Join(dir, "cache"), RunDir: filepath.Join(dir, "run"), WorkspacesDir: filepath.Join(dir, "ws"),
		Worker: []string{self, "provider-worker"}, Slots: 1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return errors.Join(errors.New("confined: "+e.Isolation()), e.Close())
}

// TestUserNamespacesForbidden starts an executor as a plain user where the kernel forbids user namespaces, and where it does not.
func TestUserNamespacesForbidden(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becomes another user: run as root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{
		"0":   "this machine forbids user namespaces to ordinary accounts (user.max_user_namespaces is 0), see docs/provisioners.md",
		"100": "confined: namespaces by bubblewrap",
	} {
		dir, err := os.MkdirTemp("/var/tmp", "cmuser")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		program := filepath.Join(dir, "tests") // where the user reaches it
		if out, err := exec.CommandContext(t.Context(), "cp", self, program).CombinedOutput(); err != nil {
			t.Fatalf("copy: %v\n%s", err, out)
		}
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		const become = `echo $0 >/proc/sys/user/max_user_namespaces && exec setpriv --reuid 12345 --regid 12345 --clear-groups -- "$@"`
		cmd := exec.CommandContext(t.Context(), "sh", "-c", become, setting, program, "confine", dir)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
		all := []syscall.SysProcIDMap{{Size: 65536}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("with %s user namespaces: %v, want %q\n%s", setting, err, want, out)
		}
	}
}
