// Package scratch creates temporary folders that do not outlive their owner, even if the owner is killed. Each folder
// contains a named pipe that its owner keeps open, and Sweep removes folders whose pipe has no reader. The kernel
// closes the pipe of a killed process, so neither a reused process id nor another PID namespace can mislead Sweep.
//
// The pipe gets its name after its owner has opened it, so a pipe without a reader belongs to an owner that has ended.
// Another process may be creating a folder without a pipe: Sweep leaves it alone. A lock on the folder that they remove
// serializes sweeps.
//
// The workspace's start script (internal/bootstrap) creates its folder the same way. The package does not know what the
// folders contain.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// PipeName is the name of the pipe in each folder. Until it is open it has NewPipeName.
const (
	PipeName    = "codermesh-alive"
	NewPipeName = PipeName + ".new"
)

// prefixes are the prefixes of folders that Sweep examines. Other programs' folders with such names have no such pipe.
var prefixes = []string{"coder.", "coder-git-", "coder-agent-", "coder-sign-", "ssh-"}

// ErrTaken is returned by Take for a folder that this process must not replace.
var ErrTaken = errors.New("another process or account has it")

// Folder is a temporary folder that this process holds. Close it.
type Folder struct {
	path string
	pipe *os.File // nil if the system has no named pipes: Sweep leaves the folder alone
}

// Make creates a new folder, for this account only, in the system's temporary folder. Its name begins with prefix.
func Make(prefix string) (*Folder, error) { return makeIn("", prefix) }

func makeIn(parent, prefix string) (*Folder, error) {
	path, err := os.MkdirTemp(parent, prefix) // mode 0700
	if err != nil {
		return nil, fmt.Errorf("make temporary folder: %w", err)
	}
	pipe, err := makePipe(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make temporary folder: %w", err), os.RemoveAll(path))
	}
	return &Folder{path: path, pipe: pipe}, nil
}

// Take creates the folder at path, and replaces one whose owner has ended. It returns ErrTaken if the folder is in use
// or belongs to another account, because any account can create a folder with a known name in the system's temporary
// folder.
func Take(path string) (*Folder, error) {
	parent, name := filepath.Split(path)
	f, err := makeIn(parent, name+"-")
	if err != nil {
		return nil, err
	}
	err = os.Rename(f.path, path)
	if errors.Is(err, fs.ErrExist) {
		if err := sweepOne(parent, name); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		err = os.Rename(f.path, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take temporary folder %s: %w: %w", path, ErrTaken, err), f.Close())
	}
	f.path = path
	return f, nil
}

// sweepOne removes one folder of this account, if its owner has ended.
func sweepOne(parent, name string) error {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return fmt.Errorf("sweep temporary folder: %w", err)
	}
	defer root.Close()
	removeEmpty(filepath.Join(parent, name)) // earlier versions left empty ones
	if err := sweepFolder(root, name, os.Geteuid()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep temporary folder %s: %w", filepath.Join(parent, name), err)
	}
	return nil
}

// Path returns the folder's path.
func (f *Folder) Path() string { return f.path }

// Close removes the folder with its content.
func (f *Folder) Close() error {
	err := os.RemoveAll(f.path)
	if f.pipe != nil {
		err = errors.Join(err, f.pipe.Close())
	}
	return err
}

// Sweep removes the folders in parent that belong to the account uid and whose owner has ended. It follows no links. If
// it cannot remove a folder it continues with the others, and returns all errors.
func Sweep(parent string, uid int) error {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return fmt.Errorf("sweep temporary folders: %w", err)
	}
	defer root.Close()
	names, err := namesIn(root)
	if err != nil {
		return fmt.Errorf("sweep temporary folders: %w", err)
	}
	var failed []error
	for _, name := range names {
		if !swept(name) {
			continue
		}
		if err := sweepFolder(root, name, uid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("sweep temporary folder %s: %w", filepath.Join(parent, name), err))
		}
	}
	return errors.Join(failed...)
}

func namesIn(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

func swept(name string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// sweepFolder removes one folder, if its owner has ended.
func sweepFolder(root *os.Root, name string, uid int) error {
	info, err := root.Lstat(name)
	if err != nil || !private(info, uid) {
		return err
	}
	folder, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	unlock, err := lock(folder)
	if unlock == nil {
		return err
	}
	defer unlock()
	// Under the lock the name stays this folder's: its owner has ended, and only sweeps remove such folders.
	opened, err := folder.Stat(".")
	if err != nil {
		return err
	}
	named, err := root.Lstat(name)
	if err != nil || !os.SameFile(opened, named) || !private(named, uid) {
		return err
	}
	if dead, err := abandoned(folder); err != nil || !dead {
		return err
	}
	names, err := namesIn(folder)
	if err != nil {
		return err
	}
	for _, entry := range names {
		if entry == PipeName {
			continue // last, so that a later sweep can sweep what an interrupted one leaves
		}
		if err := folder.RemoveAll(entry); err != nil {
			return err
		}
	}
	if err := folder.Remove(PipeName); err != nil {
		return err
	}
	return root.Remove(name)
}
