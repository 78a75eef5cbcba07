package agent

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/connlog"
	"github.com/codermesh/codermesh/v2/agent/proc"
)

// connectionKind is the purpose of a connection.
type connectionKind int

const (
	kindVSCode connectionKind = iota
	kindJetBrains
	kindTerminal
	kindForward
	kinds
)

// defaultStatsInterval is how often the agent reports that the workspace is in use.
const defaultStatsInterval = time.Minute

// stats counts open connections.
type stats struct {
	open [kinds]atomic.Int64
	// ever is set if anything was open since the last report, even a short command.
	ever atomic.Bool
}

// begin counts a connection. The caller calls what it returns when the connection ends.
func (s *stats) begin(kind connectionKind) (end func()) {
	s.ever.Store(true)
	s.open[kind].Add(1)
	return func() { s.open[kind].Add(-1) }
}

// sessionTypeEnv is the variable with which editors' SSH clients identify themselves.
const sessionTypeEnv = "CODER_SSH_SESSION_TYPE"

// session counts an SSH session that identifies itself as an editor's.
func (s *stats) session(conn net.Conn, env *proc.Env) (end func()) {
	switch kind, _ := env.Get(sessionTypeEnv); strings.ToLower(kind) {
	case "vscode":
		connlog.SetKind(conn, agentpb.Connection_KIND_VSCODE)
		return s.begin(kindVSCode)
	case "jetbrains":
		connlog.SetKind(conn, agentpb.Connection_KIND_JETBRAINS)
		return s.begin(kindJetBrains)
	}
	return func() {}
}

// counted wraps choose so that every connection counts as a forwarded port's, and is in the log.
func (s *stats) counted(
	log *connlog.Log, choose func(src, dst netip.AddrPort) (func(net.Conn), bool),
) func(src, dst netip.AddrPort) (func(net.Conn), bool) {
	return func(src, dst netip.AddrPort) (func(net.Conn), bool) {
		serve, ok := choose(src, dst)
		if !ok {
			return nil, false
		}
		return func(conn net.Conn) {
			defer s.begin(kindForward)()
			serve(log.Forwarded(conn, src.Addr(), dst.Port()))
		}, true
	}
}

// listener records connections that end before the next report, and logs them.
type listener struct {
	net.Listener
	stats *stats
	log   *connlog.Log
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.stats.ever.Store(true)
		conn = l.log.Session(conn)
	}
	return conn, err
}

// request returns the current numbers. Every SSH connection has at least one session of some kind.
func (s *stats) request(sshConns int, log *connlog.Log) *agentpb.StatsRequest {
	n := func(kind connectionKind) uint32 { return uint32(max(s.open[kind].Load(), 0)) }
	ssh := max(int64(sshConns)-s.open[kindVSCode].Load()-s.open[kindJetBrains].Load(), 0)
	in, out := log.Bytes()
	return &agentpb.StatsRequest{
		Ssh: uint32(ssh), Vscode: n(kindVSCode), Jetbrains: n(kindJetBrains), ReconnectingPty: n(kindTerminal),
		PortForward: n(kindForward),
		RxBytes:     uint64(in), TxBytes: uint64(out),
	}
}
