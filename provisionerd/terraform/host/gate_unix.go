//go:build unix

package host

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

// passConn sends a connection over another one to a process that receives it with receivedConns.
func passConn(over, conn *net.UnixConn) error {
	return netio.Control(conn, func(fd int) error {
		_, _, err := over.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
		return err
	})
}

// Accept waits for the next connection; it returns io.EOF after the last.
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
		// The caller must open a lost connection again.
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

// connPair returns the two ends of one connection: one for us, one for a child.
func connPair() (*net.UnixConn, *os.File, error) {
	// A child that starts at the same time, such as a job, must not inherit either end.
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
