//go:build unix

package proc

import "testing"

func TestUsableShell(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/bin/sh": true, "/usr/sbin/nologin": false, "/bin/false": false, "/no/such/shell": false, "": false} {
		if got := usableShell(path); got != want {
			t.Errorf("usableShell(%q): got %v, want %v", path, got, want)
		}
	}
}
