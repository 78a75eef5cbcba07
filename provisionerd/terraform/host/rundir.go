package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// An executor owns its run folder as long as it holds the lock of the file "lock" in it. A derived folder, whose name
// chooseDirs made, is removed when the executor ends, unless it holds what Recover may need; what a killed executor
// left is removed when another starts (sweep). Derived folders are locked, removed and swept under one more lock of
// this account, so that none is removed between its creation and its lock.
const (
	runLock      = "lock"
	leftDir      = "left"
	volatileLock = "codermesh-folders"
)

// ownFiles matches the names of an executor's files in its run folder, apart from the folders of slots and leftDir.
// ownFolders matches those of folders that hold nothing to keep.
var (
	ownFiles   = lazyregexp.New(`^([gjptux]-?[0-9]+(\.new|\.run)?|try(\.pid|\.new|\.run)?|terraformrc)$`)
	ownFolders = lazyregexp.New(`^e-?[0-9]+$`)
)

// derivedDirs matches the names of run folders that chooseDirs makes.
var derivedDirs = lazyregexp.New(`^cm-[0-9a-f]{10}$`)

// holdFolders takes the lock over derived run folders and returns a function that releases it.
func holdFolders(volatile string) (release func() error, err error) {
	if err := makeDirs(volatile); err != nil {
		return nil, err
	}
	if volatile != "/run" { // /run belongs to root, even if root has another number
		if err := ownedByUs(volatile); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(filepath.Join(volatile, volatileLock), os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run folders: %w", err)
	}
	if err := waitLock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("lock run folders: %w", err), file.Close())
	}
	return file.Close, nil
}

// lockRunDir makes the run folder and takes its lock. Before it makes a derived one it removes what dead executors of
// this account left.
func (h *Host) lockRunDir() (err error) {
	if h.derived {
		volatile := filepath.Dir(h.runDir)
		release, err := holdFolders(volatile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
		if err := sweep(volatile, time.Now()); err != nil {
			h.log.Warn("cannot remove run folders of earlier executors", "err", err)
		}
	}
	if err := makeDirs(h.runDir); err != nil {
		return err
	}
	if err := ownedByUs(h.runDir); err != nil {
		return err
	}
	if err := os.Chmod(h.runDir, 0o711); err != nil {
		return fmt.Errorf("close run folder: %w", err)
	}
	h.lock, err = lockFile(filepath.Join(h.runDir, runLock))
	return err
}

// leaveRunDir releases the run folder's lock. It removes a derived folder, unless that holds what Recover may need.
func (h *Host) leaveRunDir() (err error) {
	if !h.derived {
		return h.lock.Close()
	}
	release, err := holdFolders(filepath.Dir(h.runDir))
	if err != nil {
		return errors.Join(err, h.lock.Close())
	}
	defer func() { err = errors.Join(err, h.lock.Close(), release()) }()
	root, err := os.OpenRoot(h.runDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("leave run folder: %w", err)
	}
	defer root.Close()
	if kept, err := emptyRunDir(root); kept || err != nil {
		return err
	}
	if err := os.Remove(h.runDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("leave run folder: %w", err)
	}
	return nil
}

// emptyRunDir removes an executor's own files from its run folder, and reports whether anything is left in it.
func emptyRunDir(root *os.Root) (kept bool, err error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return true, fmt.Errorf("empty run folder: %w", err)
	}
	hasLock := false
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == runLock:
			hasLock = true // the last, because it makes the folder ours
		case name == leftDir && entry.IsDir():
			kept = root.Remove(name) != nil || kept // it holds remains of jobs
		case ownFiles().MatchString(name) && !entry.IsDir(), ownFolders().MatchString(name):
			if err := root.RemoveAll(name); err != nil {
				return true, fmt.Errorf("empty run folder: %w", err)
			}
		default:
			kept = true
		}
	}
	if kept || !hasLock {
		return kept, nil
	}
	if err := root.Remove(runLock); err != nil {
		return true, fmt.Errorf("empty run folder: %w", err)
	}
	return false, nil
}

// sweep removes the run folders of dead executors: derived ones of this account whose lock is free, and that hold
// nothing that Recover may need, or only what is too old to be kept.
func sweep(volatile string, now time.Time) error {
	parent, err := os.OpenRoot(volatile)
	if err != nil {
		return fmt.Errorf("sweep run folders: %w", err)
	}
	defer parent.Close()
	entries, err := fs.ReadDir(parent.FS(), ".")
	if err != nil {
		return fmt.Errorf("sweep run folders: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if derivedDirs().MatchString(entry.Name()) && entry.IsDir() {
			errs = append(errs, sweepOne(parent, entry.Name(), now))
		}
	}
	return errors.Join(errs...)
}

func sweepOne(parent *os.Root, name string, now time.Time) error {
	info, err := parent.Lstat(name)
	if err != nil || !info.IsDir() {
		return nil // it was removed, or became a link
	}
	if of, ok := statusOf(info); !ok || of.uid != os.Geteuid() {
		return nil
	}
	root, err := parent.OpenRoot(name)
	if err != nil {
		return nil // likewise
	}
	defer root.Close()
	lock, err := root.OpenFile(runLock, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil // its owner is unknown
	}
	defer lock.Close()
	if tryLock(lock) != nil {
		return nil // its executor lives
	}
	if since, found := remains(root); found && now.Sub(since) < leftFor {
		return nil
	}
	if err := parent.RemoveAll(name); err != nil {
		return fmt.Errorf("sweep run folders: %w", err)
	}
	return nil
}

// remains reports whether a run folder holds remains of jobs, and when its content last changed. It treats what it
// cannot read as recent remains.
func remains(root *os.Root) (since time.Time, found bool) {
	for _, dir := range []string{".", leftDir} {
		entries, err := fs.ReadDir(root.FS(), dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return time.Now(), true
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				return time.Now(), true
			}
			if info.ModTime().After(since) {
				since = info.ModTime()
			}
			name := entry.Name()
			found = found || dir == leftDir || name[0] == 'j' && ownFiles().MatchString(name)
		}
	}
	return since, found
}

// leftFor is how long the remains of a job wait for Recover.
const leftFor = 14 * 24 * time.Hour

// maxRunDir leaves room for "/s99/<random>/plugin<digits>" in the 107 bytes of a unix socket's name.
const maxRunDir = 60

// chooseDirs fills the empty folders in opts and makes them all.
func (h *Host) chooseDirs() error {
	root := os.Geteuid() == 0
	if h.opts.CacheDir == "" {
		h.opts.CacheDir = "/var/cache/codermesh"
		if !root {
			dir, err := os.UserCacheDir()
			if err != nil {
				return fmt.Errorf("choose cache folder: %w", err)
			}
			h.opts.CacheDir = filepath.Join(dir, "codermesh")
		}
	}
	volatile := shortVolatileDir(root)
	if h.opts.RunDir == "" {
		h.opts.RunDir = filepath.Join(volatile, "cm")
	}
	var err error
	if h.opts.CacheDir, err = filepath.Abs(h.opts.CacheDir); err != nil {
		return fmt.Errorf("choose cache folder: %w", err)
	}
	if h.runDir, err = filepath.Abs(h.opts.RunDir); err != nil {
		return fmt.Errorf("choose run folder: %w", err)
	}
	// As root, templates run as another account, which must reach the folder.
	_, open := reachable(existing(h.runDir))
	if len(h.runDir) > maxRunDir || root && !open {
		sum := sha256.Sum256([]byte(h.runDir))
		h.runDir, h.derived = filepath.Join(volatile, "cm-"+hex.EncodeToString(sum[:5])), true
	}
	if h.opts.WorkspacesDir == "" {
		h.opts.WorkspacesDir = "/var/lib/codermesh/workspaces"
		if !root {
			home, err := os.UserHomeDir()
			if err != nil {
				return fmt.Errorf("choose workspaces folder: %w", err)
			}
			h.opts.WorkspacesDir = filepath.Join(home, ".local/share/codermesh/workspaces")
		}
	}
	if h.opts.WorkspacesDir, err = filepath.Abs(h.opts.WorkspacesDir); err != nil {
		return fmt.Errorf("choose workspaces folder: %w", err)
	}
	if err := makeDirs(h.opts.CacheDir, filepath.Join(h.opts.CacheDir, "templates"), h.opts.WorkspacesDir); err != nil {
		return err
	}
	return ownedByUs(h.opts.WorkspacesDir) // another user may have created one whose name can be guessed
}
