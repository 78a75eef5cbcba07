package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestForbidsUserNamespaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setting, value, want string }{
		"none":               {"kernel/other", "0\n", ""},
		"a bound":            {"user/max_user_namespaces", "31000\n", ""},
		"no user namespaces": {"user/max_user_namespaces", "0\n", "user.max_user_namespaces is 0"},
		"Debian allows":      {"kernel/unprivileged_userns_clone", "1\n", ""},
		"Debian forbids":     {"kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone is 0"},
		"Ubuntu allows":      {"kernel/apparmor_restrict_unprivileged_userns", "0\n", ""},
		"Ubuntu forbids":     {"kernel/apparmor_restrict_unprivileged_userns", "1\n", "kernel.apparmor_restrict_unprivileged_userns is 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			file := filepath.Join(root, "proc/sys", c.setting)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.value), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := forbidsUserNamespaces(root); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
