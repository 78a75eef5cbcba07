package host

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// gate guards a job's provider worker, which knows secrets of the job's owner. Terraform cannot present a certificate
// to a provider that it is attached to, so the daemon asks the kernel who connects: it accepts connections on a socket
// in the job's folder, admits the job's own processes, and passes their connections to the worker, which has no
// listener.
type gate struct {
	listener *net.UnixListener
	admit    func(*net.UnixConn) error
	hand     func(*net.UnixConn) error
	log      *slog.Logger
	over     sync.WaitGroup
}

// openGate listens at path, which must not exist, for the account uid; 0 means our own account.
func openGate(path string, uid, gid int, admit, hand func(*net.UnixConn) error, log *slog.Logger) (*gate, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for terraform: %w", err)
	}
	if err = os.Chmod(path, 0o600); err == nil && uid != 0 {
		err = os.Lchown(path, uid, gid)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for terraform: %w", err), listener.Close())
	}
	g := &gate{listener: listener, admit: admit, hand: hand, log: log}
	g.over.Go(g.run)
	return g, nil
}

func (g *gate) run() {
	warned := false
	for {
		conn, err := g.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of files or memory
			g.log.Warn("cannot accept a connection to a provider worker", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		if err = g.admit(conn); err != nil && !warned {
			warned = true // once for each job: a template can make many
			g.log.Warn("refused a connection to a provider worker", "err", err)
		}
		if err == nil {
			if err := g.hand(conn); err != nil {
				g.log.Warn("cannot hand a connection to its provider worker", "err", err)
			}
		}
		conn.Close() // the worker has its own
	}
}

// acceptPause is how long the gate waits after it failed to accept a connection.
const acceptPause = 50 * time.Millisecond

// close stops admitting and waits for admissions in progress. Connections that the worker has stay open.
func (g *gate) close() {
	g.listener.Close() // removes the socket; fails if the job has removed its folder
	g.over.Wait()
}

// receivedConns is a listener that receives its connections over another connection.
type receivedConns struct{ over *net.UnixConn }

func (l receivedConns) Close() error   { return l.over.Close() }
func (l receivedConns) Addr() net.Addr { return l.over.LocalAddr() }
