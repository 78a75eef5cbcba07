//go:build unix

package proc_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

// TestExpandList checks that what a list adds to the machine's value leaves that in effect, whether it is set or not.
func TestExpandList(t *testing.T) {
	t.Parallel()
	env := proc.NewEnv([]string{"PATH=/usr/bin:/bin", "EMPTY=", "HOME=/home/ann"})
	for _, tt := range []struct{ name, value, want string }{
		{"PATH", "${PATH}:/opt/bin", "/usr/bin:/bin:/opt/bin"},
		{"PATH", "$HOME/bin:$PATH", "/home/ann/bin:/usr/bin:/bin"},
		{"LD_LIBRARY_PATH", "${LD_LIBRARY_PATH}:/opt/lib", "/opt/lib"},
		{"LD_LIBRARY_PATH", "/a:$LD_LIBRARY_PATH:$HOME/lib", "/a:/home/ann/lib"},
		{"EMPTY", "${EMPTY}:/a", "/a"},
		{"MANPATH", "${MANPATH}:/opt/man", ":/opt/man"},
		{"XDG_DATA_DIRS", "/opt/share:${XDG_DATA_DIRS}", "/opt/share:/usr/local/share:/usr/share"},
		{"XDG_CONFIG_DIRS", "${XDG_CONFIG_DIRS}:/opt/etc", "/etc/xdg:/opt/etc"},
		{"PASSWORD", "a$PASSWORD:b", "a$PASSWORD:b"},
		{"PASSWORD", "$PASSWORD", "$PASSWORD"},
		{"OTHER", "$NONE:$HOME", "$NONE:/home/ann"},
	} {
		if got := env.ExpandList(tt.name, tt.value); got != tt.want {
			t.Errorf("%s=%s: got %q, want %q", tt.name, tt.value, got, tt.want)
		}
	}
}
