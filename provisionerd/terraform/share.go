package terraform

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
)

// Providers are large, and each template version installs its own. Files with the same content share one file on disk:
// the store, beside the versions, names them by hash, and the versions hold hard links. Only the daemon writes there,
// and it copies what it adds, so that no process that init left behind has such a file open.
const (
	versionsDir = "templates" // below the cache folder
	storeDir    = "providers" // below the cache folder
	// sharedFrom is the size from which files are shared, in bytes.
	sharedFrom = 1 << 20
)

// share replaces the large files that init has installed into a version's closed folder with links into the store. If
// the file system does not support such links the files stay as they are. version is the folder's name below the cache
// folder.
func share(cacheDir, version string) error {
	root, err := os.OpenRoot(cacheDir)
	if err != nil {
		return fmt.Errorf("share providers: %w", err)
	}
	defer root.Close()
	if err := root.Mkdir(storeDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("share providers: %w", err)
	}
	top := path.Join(version, ".terraform", "providers")
	if _, err := root.Lstat(top); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = fs.WalkDir(root.FS(), top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Size() < sharedFrom {
			return err
		}
		return shareFile(root, name, info.Mode().Perm())
	})
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EPERM) ||
		errors.Is(err, syscall.EMLINK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("share providers: %w", err)
	}
	return nil
}

func shareFile(root *os.Root, name string, mode fs.FileMode) error {
	sum, err := hashOf(root, name, io.Discard)
	if err != nil {
		return err
	}
	stored := storedName(sum, mode)
	if _, err := root.Lstat(stored); errors.Is(err, fs.ErrNotExist) {
		if stored, err = store(root, name, mode); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	dir, fresh := path.Dir(name), name+".new"
	if err := root.Chmod(dir, 0o755); err != nil { // it is closed, even to us unless we are root
		return err
	}
	err = root.Link(stored, fresh)
	if err == nil {
		err = root.Rename(fresh, name)
	}
	return errors.Join(err, root.Chmod(dir, 0o555))
}

// store copies a file into the store and returns its name there, which is the hash of its content.
func store(root *os.Root, name string, mode fs.FileMode) (string, error) {
	fresh := path.Join(storeDir, ".new-"+rand.Text()) // tidyStore removes leftovers
	file, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	sum, err := hashOf(root, name, file)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, root.Remove(fresh))
	}
	return storedName(sum, mode), root.Rename(fresh, storedName(sum, mode))
}

func storedName(sum string, mode fs.FileMode) string {
	return path.Join(storeDir, fmt.Sprintf("%s-%o", sum, mode))
}

// hashOf reads a file, copies it to out, and returns its SHA-256 in hex.
func hashOf(root *os.Root, name string, out io.Writer) (string, error) {
	in, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer in.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(hash, out), in); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// tidyStore deletes files to which no version links.
func tidyStore(cacheDir string) error {
	dir := filepath.Join(cacheDir, storeDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tidy providers: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // another process was faster
		}
		// A version may be about to link to a new file.
		links, ok := host.Links(info)
		if !ok || links > 1 || time.Since(info.ModTime()) < tidyEvery {
			continue
		}
		if err := host.RemoveFile(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("tidy providers: %w", err)
		}
	}
	return nil
}

// tidyEvery is the minimum time between two searches for unused versions.
const tidyEvery = time.Hour
