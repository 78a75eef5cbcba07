package host

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// The package compiles on Windows, but runs no builds there: see package sandbox.

const noFollow = 0

type status struct {
	uid, gid    int
	links, used uint64
}

func statusOf(fs.FileInfo) (status, bool) { return status{}, false }

func tryLock(*os.File) error { return errors.ErrUnsupported }

func waitLock(*os.File) error { return errors.ErrUnsupported }

func kill(int, syscall.Signal) error { return errors.ErrUnsupported }

func passConn(_, _ *net.UnixConn) error { return errors.ErrUnsupported }

func (l receivedConns) Accept() (net.Conn, error) { return nil, errors.ErrUnsupported }

func connPair() (*net.UnixConn, *os.File, error) { return nil, nil, errors.ErrUnsupported }
