package sshd

import (
	"strings"
	"syscall"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

const (
	maxEnv      = 256       // variables per session
	maxEnvBytes = 256 << 10 // their names and values together
)

// ptyRequest is the data of pty-req: RFC 4254, section 6.2.
type ptyRequest struct {
	Term                  string
	Columns, Rows         uint32
	WidthPixels, HeightPx uint32
	Modes                 string
}

// windowChange is the data of window-change: RFC 4254, section 6.7.
type windowChange struct{ Columns, Rows, WidthPixels, HeightPx uint32 }

func (s *session) setEnv(payload []byte) bool {
	var kv struct{ Name, Value string }
	if gossh.Unmarshal(payload, &kv) != nil || s.isStarted() || !proc.AcceptEnv(kv.Name, kv.Value) {
		return false
	}
	s.envCount++
	s.envBytes += len(kv.Name) + len(kv.Value)
	if s.envCount > maxEnv || s.envBytes > maxEnvBytes {
		return false
	}
	s.env.Set(kv.Name, kv.Value)
	return true
}

func (s *session) setPTY(payload []byte) bool {
	var req ptyRequest
	if gossh.Unmarshal(payload, &req) != nil || s.isStarted() || s.pty != nil || strings.IndexByte(req.Term, 0) >= 0 {
		return false
	}
	s.pty = &req
	return true
}

func (s *session) resize(payload []byte) bool {
	var win windowChange
	if gossh.Unmarshal(payload, &win) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		s.window = &win
		return true
	}
	return s.process.resize(win) == nil
}

func (s *session) signal(payload []byte) bool {
	var req struct{ Name string }
	if gossh.Unmarshal(payload, &req) != nil {
		return false
	}
	sig, ok := signals[req.Name]
	if !ok {
		return false
	}
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	return p != nil && p.signal(sig) == nil
}

func (s *session) forwardAgent() bool {
	if s.isStarted() || s.agentPath != "" {
		return false
	}
	path, err := s.conn.forwardAgent()
	if err != nil {
		s.log.Warn("cannot forward ssh agent", "err", err)
		return false
	}
	s.agentPath = path
	return true
}

// signals maps the names of RFC 4254, section 6.10, and other names that clients send.
var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP, "ILL": syscall.SIGILL,
	"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE, "QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV,
	"TERM": syscall.SIGTERM,
}
