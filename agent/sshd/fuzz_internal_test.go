//go:build linux

package sshd

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/sshmux"
)

// FuzzSessionRequests sends a session a client's requests, two of a kind, without starting what they request.
func FuzzSessionRequests(f *testing.F) {
	text := func(s string) []byte { return gossh.Marshal(struct{ S string }{s}) }
	f.Add("env", gossh.Marshal(struct{ Name, Value string }{"LANG", "C"}))
	f.Add("env", gossh.Marshal(struct{ Name, Value string }{"CODER_AGENT_TOKEN", "x"}))
	f.Add("pty-req", gossh.Marshal(ptyRequest{Term: "xterm", Columns: 1 << 31, Rows: 24, Modes: "\x03\x00\x00\x00\xff\x00"}))
	f.Add("window-change", gossh.Marshal(windowChange{1 << 31, 1, 2, 3}))
	f.Add("signal", text("KILL"))
	f.Add("exec", text("true"))
	f.Add("subsystem", text("sftp"))
	f.Add("shell", []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, kind string, payload []byte) {
		if kind == "x11-req" || kind == "auth-agent-req@openssh.com" {
			return // they listen; their parser has a target of its own
		}
		s := &session{env: proc.NewEnv(nil), ended: make(chan struct{}), log: slog.New(slog.DiscardHandler)}
		for range 2 {
			ok, run := s.handle(&sshmux.Request{Type: kind, Payload: payload})
			if run != nil && !ok {
				t.Fatal("a refused request starts something")
			}
		}
		for _, kv := range s.env.List() {
			name, value, _ := strings.Cut(kv, "=")
			if proc.Internal(name) || strings.IndexByte(value, 0) >= 0 {
				t.Fatalf("the variable %q was taken", kv)
			}
		}
		if s.pty != nil {
			applyModes(new(unix.Termios), []byte(s.pty.Modes))
			if strings.IndexByte(s.pty.Term, 0) >= 0 {
				t.Fatalf("the terminal %q was taken", s.pty.Term)
			}
		}
	})
}

func FuzzX11(f *testing.F) {
	f.Add(gossh.Marshal(x11Request{Protocol: "MIT-MAGIC-COOKIE-1", Cookie: "00ff"}))
	f.Add(gossh.Marshal(x11Request{Protocol: "A\nquit", Cookie: "00"}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		req, ok := parseX11(payload)
		if ok && (strings.ContainsAny(req.Protocol+req.Cookie, " \t\r\n\"'\\#") || strings.HasPrefix(req.Protocol, "-")) {
			t.Fatalf("%+v would be more than a cookie to xauth", req)
		}
	})
}

func FuzzDirectTCP(f *testing.F) {
	f.Add(gossh.Marshal(directTCP{"localhost", 80, "127.0.0.1", 1}))
	f.Add(gossh.Marshal(directTCP{"a:b]", 1 << 20, "", 0}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		addr, ok := parseDirectTCP(payload)
		if !ok {
			return
		}
		if _, port, err := net.SplitHostPort(addr); err == nil && len(port) > 5 {
			t.Fatalf("%q has no port", addr)
		}
	})
}

func FuzzTerminalModes(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 127, 53, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, modes []byte) { applyModes(new(unix.Termios), modes) })
}
