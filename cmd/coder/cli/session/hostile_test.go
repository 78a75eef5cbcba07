package session_test

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/session"
)

// TestHostileWorkspace: a workspace opens nothing on the laptop that the user did not ask for: no SSH agent, display, session or connection.
func TestHostileWorkspace(t *testing.T) {
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	t.Setenv("SSH_AUTH_SOCK", t.TempDir()+"/agent")
	t.Setenv("DISPLAY", ":0")
	port := uint32(local.Addr().(*net.TCPAddr).Port)
	type connection struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	opened := map[string]error{}
	var w *world
	w = newWorld(t, "", func(r *remote) {
		for kind, data := range map[string]any{
			"auth-agent@openssh.com": nil, "agent-connect": nil, "session": nil,
			"x11": struct {
				Host string
				Port uint32
			}{"127.0.0.1", 6000},
			"forwarded-tcpip": connection{"127.0.0.1", port, "127.0.0.1", 1},
			"direct-tcpip":    connection{"127.0.0.1", port, "127.0.0.1", 1},
			"direct-streamlocal@openssh.com": struct {
				Path, Reserved string
				Port           uint32
			}{"/var/run/docker.sock", "", 0},
			"forwarded-streamlocal@openssh.com": struct{ Path, Reserved string }{"/var/run/docker.sock", ""},
		} {
			var payload []byte
			if data != nil {
				payload = ssh.Marshal(data)
			}
			_, opened[kind] = w.agent.OpenConfirmed(kind, payload)
		}
		r.exit(0)
	})
	if err := w.run(t, session.Options{}); err != nil {
		t.Fatal(err)
	}
	if len(opened) != 8 {
		t.Fatalf("tried %v", opened)
	}
	for kind, err := range opened {
		if _, ok := errors.AsType[*ssh.OpenChannelError](err); !ok {
			t.Errorf("%s: got %v, want a refusal", kind, err)
		}
	}
}
