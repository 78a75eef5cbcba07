package provisionerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	lockName = "owner"
	// successorMark precedes the process id of a successor in the file. Daemons of all versions read it.
	successorMark = "heir "
	// yieldTime bounds how long a daemon waits for the successor of a killed daemon to leave the mesh and exit.
	yieldTime = 30 * time.Second
)

// FolderLock is one process's exclusive hold on a daemon's folder.
type FolderLock struct{ file *os.File }

// LockFolder locks the folder of a daemon for this process, until Release or the end of the process. It asks the
// successor of a killed daemon (Options.Successor) to leave, and waits until it has. It fails with a conflict if
// another daemon holds the folder, or, for a successor, if any process does.
func LockFolder(ctx context.Context, dir string, successor bool) (*FolderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(fault.Invalid, "The provisioner's folder cannot be created: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The provisioner's folder cannot be used: %w", err)
	}
	if err := waitForFolder(ctx, file, dir, successor); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	text := ""
	if successor {
		text = successorMark + strconv.Itoa(os.Getpid())
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(text), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock folder: %w", err), file.Close())
	}
	return &FolderLock{file}, nil
}

// Release gives up the lock.
func (l *FolderLock) Release() error { return l.file.Close() }

func waitForFolder(ctx context.Context, file *os.File, dir string, successor bool) error {
	ctx, cancel := context.WithTimeout(ctx, yieldTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	asked := 0
	for {
		taken := lockFile(file)
		if taken == nil {
			return nil
		}
		pid, isSuccessor := successorOf(file)
		if successor || !isSuccessor {
			return fault.New(fault.Conflict,
				"A provisioner with this name runs on this machine already: it uses the folder %s", dir).
				WithDetail("Give each provisioner on this machine its own --name.")
		}
		if pid != asked {
			// The successor may have exited since; then the lock is free.
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Signal(syscall.SIGTERM)
			}
			asked = pid
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fault.New(fault.Conflict,
				"The helper that delivers a killed provisioner's results still uses the folder %s: %w", dir, taken)
		}
	}
}

// successorOf reads the id of the process that holds the folder.
func successorOf(file *os.File) (pid int, ok bool) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 64))
	if err != nil {
		return 0, false
	}
	number, ok := strings.CutPrefix(string(text), successorMark)
	if !ok {
		return 0, false
	}
	pid, err = strconv.Atoi(number)
	return pid, err == nil && pid > 1
}

// Undelivered reports whether a folder (Options.StateDir) contains journals of jobs.
func Undelivered(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list journals: %w", err)
	}
	for _, e := range entries {
		if _, ok := parseKey(e.Name()); ok {
			return true, nil
		}
	}
	return false, nil
}
