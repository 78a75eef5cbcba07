package sshd

import (
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// TestForeignChannel: a channel of another type than the one that adjustWindow is made for ends the program instead of writing
// somewhere in its memory. The library's own passes in every other test of sessions.
func TestForeignChannel(t *testing.T) {
	t.Parallel()
	type foreign struct{ gossh.Channel }
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "sshd.foreign") {
			t.Errorf("got %q, want the type's name", text)
		}
	}()
	(&Server{}).wide(&foreign{})
}
