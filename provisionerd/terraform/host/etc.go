package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxEtcCopy is the size in bytes up to which a file is copied.
const maxEtcCopy = 1 << 20

// writeEtc makes dir the /etc of a sandbox, or brings it up to date. No sandbox may use it.
func (h *Host) writeEtc(dir string, a account) (*etcFolder, error) {
	v := h.hostFiles()
	h.etc.Lock()
	defer h.etc.Unlock()
	f := etcFolder{dir: dir}
	wanted := map[string]bool{dir: true}
	place := func(name string) (string, error) {
		at := filepath.Join(dir, strings.TrimPrefix(name, configDir))
		for above := at; !wanted[above]; above = filepath.Dir(above) {
			wanted[above] = true
			if info, err := os.Lstat(above); above != at && err == nil && !info.IsDir() {
				if err := os.Remove(above); err != nil { // a file of an earlier time
					return "", err
				}
			}
		}
		return at, os.MkdirAll(filepath.Dir(at), 0o755)
	}
	for _, name := range v.paths {
		info, err := os.Lstat(name)
		if base := filepath.Base(name); err != nil || !inEtc(name) ||
			filepath.Dir(name) == configDir && (base == "passwd" || base == "group") {
			continue // the account's own follow
		}
		at, err := place(name)
		if err != nil {
			return nil, fmt.Errorf("prepare /etc: %w", err)
		}
		if open(info) && !info.IsDir() && info.Size() <= maxEtcCopy {
			err = copyEtc(name, at, info)
		} else {
			f.mounts = append(f.mounts, name)
			err = mountPoint(at, info)
		}
		if err != nil {
			return nil, fmt.Errorf("prepare /etc: %w", err)
		}
	}
	for _, link := range v.links {
		if !inEtc(link.name) {
			continue
		}
		at, err := place(link.name)
		info, statErr := os.Stat(link.name)
		switch {
		case err != nil:
		case filepath.Dir(link.name) == configDir && slices.Contains(liveNames, filepath.Base(link.name)) &&
			statErr == nil && open(info) &&
			info.Mode().IsRegular() && info.Size() <= maxEtcCopy: // a copy can follow what replaces the link's target
			err = copyEtc(link.name, at, info)
		default:
			err = linkEtc(link.target, at)
		}
		if err != nil {
			return nil, fmt.Errorf("prepare /etc: %w", err)
		}
	}
	shown := slices.Concat(h.isolation.mirrors, h.serviceAccount(), []string{h.program.path, h.opts.Worker[0]})
	for _, name := range shown { // by policies
		info, err := os.Stat(name)
		if err != nil || !inEtc(name) {
			continue
		}
		at, err := place(name)
		if err == nil {
			err = mountPoint(at, info)
		}
		if err != nil {
			return nil, fmt.Errorf("prepare /etc: %w", err)
		}
	}
	if err := writeAccountFiles(dir, a); err != nil {
		return nil, err
	}
	wanted[filepath.Join(dir, "passwd")], wanted[filepath.Join(dir, "group")] = true, true
	if err := tidyEtc(dir, wanted); err != nil {
		return nil, fmt.Errorf("prepare /etc: %w", err)
	}
	return &f, nil
}

// copyEtc copies a file unless the copy is as new.
func copyEtc(from, to string, info fs.FileInfo) error {
	if have, err := os.Lstat(to); err == nil && have.Mode().IsRegular() && have.Size() == info.Size() &&
		have.ModTime().Equal(info.ModTime()) {
		return nil
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.WriteFile(to, text, 0o644); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// linkEtc makes a link unless it is there.
func linkEtc(target, at string) error {
	if have, err := os.Readlink(at); err == nil && have == target {
		return nil
	}
	return errors.Join(os.RemoveAll(at), os.Symlink(target, at))
}

// mountPoint makes an empty file or folder unless it is there.
func mountPoint(at string, info fs.FileInfo) error {
	have, err := os.Lstat(at)
	if err == nil && have.IsDir() == info.IsDir() && (have.IsDir() || have.Mode().IsRegular() && have.Size() == 0) {
		return nil
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	if info.IsDir() {
		return os.Mkdir(at, 0o755)
	}
	return os.WriteFile(at, nil, 0o644)
}

// tidyEtc removes what the host no longer shows, and lets all accounts read the rest, whatever the daemon's umask.
func tidyEtc(dir string, wanted map[string]bool) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !wanted[name] && entry.IsDir():
			if err := os.RemoveAll(name); err != nil {
				return err
			}
			return fs.SkipDir
		case !wanted[name]:
			return os.Remove(name)
		case entry.IsDir():
			return os.Chmod(name, 0o755)
		case entry.Type().IsRegular():
			return os.Chmod(name, 0o644)
		}
		return nil
	})
}

// liveNames are the files of /etc that follow the host's while a workspace runs: names of hosts and accounts. Hosts
// replace these files, when they change networks or get new accounts, and a file that is mounted would stay the old
// one.
var liveNames = []string{"resolv.conf", "hosts", "nsswitch.conf", "passwd", "group"}
