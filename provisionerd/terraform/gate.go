package terraform

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gate is the way to a job's provider worker, which knows the secrets of the job's owner. Terraform cannot show a certificate to
// a provider that it is attached to, so the kernel says who connects: the daemon accepts connections on a socket in the job's
// folder, admits the job's own processes, and hands their connections to the worker, which listens nowhere itself.
type gate struct {
	listener *net.UnixListener
	admit    func(*net.UnixConn) error
	hand     func(*net.UnixConn) error
	log      *slog.Logger
	over     sync.WaitGroup
}

// openGate listens at path, which must not exist, for the account uid; 0 is ours.
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

// acceptPause is how long the gate waits after it could not accept.
const acceptPause = 50 * time.Millisecond

// close stops admitting and waits for it. Connections that the worker has stay.
func (g *gate) close() {
	g.listener.Close() // removes the socket; fails when the job has removed its folder
	g.over.Wait()
}

// passConn sends a connection over another to a process that reads it with receivedConns.
func passConn(over, conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = over.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sent)
}

// receivedConns is a listener whose connections come over another connection.
type receivedConns struct{ over *net.UnixConn }

// Accept waits for the next connection; io.EOF follows the last.
func (l receivedConns) Accept() (net.Conn, error) {
	data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for {
		n, size, _, _, err := l.over.ReadMsgUnix(data, control)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.EOF
		}
		conn, err := connOf(control[:size])
		if err == nil {
			return conn, nil
		}
		// A connection that is lost is the caller's to make again.
	}
}

func connOf(control []byte) (net.Conn, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil, errors.New("no connection in the message")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no connection in the message")
	}
	file := os.NewFile(uintptr(fds[0]), "connection")
	defer file.Close() // FileConn has its own
	return net.FileConn(file)
}

func (l receivedConns) Close() error   { return l.over.Close() }
func (l receivedConns) Addr() net.Addr { return l.over.LocalAddr() }

// connPair is two ends of one connection: one for us, one for a child.
func connPair() (*net.UnixConn, *os.File, error) {
	// A child that is started meanwhile, such as a job's, must get neither end.
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("connect provider worker: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connect provider worker: %w", err), theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil
}
