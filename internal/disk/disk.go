// Package disk says in words that a disk takes no more data: it is full, has room for no more files, is over a quota,
// or is read-only. It knows no program: who reports such an error names whose disk it is.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// kind is why a disk takes no more data.
type kind int

const (
	fine kind = iota
	full
	overQuota
	readOnly
)

// Usage describes a file system. Total is 0 where that is unknown, as the number of files is on some file systems.
type Usage struct {
	Free, Total           uint64 // bytes, without what only root may use
	FreeFiles, TotalFiles uint64
	InMemory              bool // a tmpfs
	ReadOnly              bool
}

// isFull reports whether the file system takes no more data or files, or so few that a write of a page may fail.
func (u Usage) isFull() bool { return u.Total > 0 && u.Free < 64<<10 || u.outOfFiles() }

func (u Usage) outOfFiles() bool { return u.TotalFiles > 0 && u.FreeFiles == 0 }

// explained marks the cause of a fault that Fault made.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// Explain returns what Fault makes of an error, or the error if that is nothing.
func Explain(err error, whose string, dirs ...string) error {
	if f := Fault(err, whose, dirs...); f != nil {
		return f
	}
	return err
}

// Fault returns a fault that says in one sentence that a disk takes no more data, with the figures of its file system,
// and has the remedy as its detail. It returns nil if err is no such error, or contains such a fault, or if another
// fault says what to do about a read-only disk, such as to choose another folder. Whose begins the sentence, such as
// "The provisioner's disk". The file system is that of the file that the error names, or of the first full one of dirs,
// which are absolute.
func Fault(err error, whose string, dirs ...string) *fault.Error {
	why := kindOf(err)
	if _, done := errors.AsType[explained](err); done || why == fine || why == readOnly && fault.As(err) != nil {
		return nil //nolint:nilerr // another fault says enough, or nothing does
	}
	if path := pathOf(err); path != "" {
		dirs = []string{path}
	}
	dir, usage := choose(dirs)
	f := sentence(why, whose, dir, usage)
	f.Cause = explained{err}
	return f
}

// ExplainText is Explain for what a program printed, which may be about other machines: it returns nil unless one of
// dirs takes no more data now.
func ExplainText(text, whose string, dirs ...string) *fault.Error {
	why := fine
	for phrase, k := range map[string]kind{
		"no space left on device": full, "not enough space on the disk": full, "disk quota exceeded": overQuota, "read-only file system": readOnly,
	} {
		if strings.Contains(strings.ToLower(text), phrase) {
			why = k
		}
	}
	if why == fine {
		return nil
	}
	dir, usage := choose(dirs)
	if why == readOnly && !usage.ReadOnly || why == full && !usage.isFull() || why == overQuota {
		return nil
	}
	return sentence(why, whose, dir, usage)
}

// kindOf returns why the disk of an error takes no more data; fine if the error is another one.
func kindOf(err error) kind {
	for k, causes := range causes {
		for _, cause := range causes {
			if errors.Is(err, cause) {
				return k
			}
		}
	}
	return fine
}

// pathOf returns the absolute path of the file that an error names, or "". Paths within an os.Root are relative.
func pathOf(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok && filepath.IsAbs(e.Path) {
		return e.Path
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok && filepath.IsAbs(e.New) {
		return e.New
	}
	return ""
}

// choose returns the first folder whose file system takes no more data, or else the first one, with the figures. Paths
// that do not exist stand for the nearest folder above them.
func choose(dirs []string) (string, Usage) {
	var first Usage
	for i, dir := range dirs {
		usage, err := Look(dir)
		if err == nil && (usage.isFull() || usage.ReadOnly) {
			return folder(dir), usage
		}
		if i == 0 && err == nil {
			first = usage
		}
	}
	if len(dirs) == 0 {
		return "", first
	}
	return folder(dirs[0]), first
}

// Look returns the figures of the file system that holds a path, or of the nearest folder above it that exists.
func Look(path string) (Usage, error) {
	usage, err := look(folder(path))
	if err != nil {
		return usage, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	return usage, nil
}

// Room says how much of the file system of a path is free, such as "0 of 20 GB free"; "" if that is unknown.
func Room(path string) string {
	usage, err := Look(path)
	if err != nil || usage.Total == 0 {
		return ""
	}
	return figures(usage.Free, usage.Total) + " free"
}

// folder returns the nearest existing folder at or above a path.
func folder(path string) string {
	for {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			return path
		}
		above := filepath.Dir(path)
		if above == path {
			return path
		}
		path = above
	}
}

// sentence says why a file system takes no more data, and what to do.
func sentence(why kind, whose, dir string, usage Usage) *fault.Error {
	at := ""
	if dir != "" {
		at = " in " + dir
	}
	switch {
	case why == readOnly:
		return fault.New(fault.Unavailable, "%s is read-only%s.", whose, at).
			WithDetail("Mount it writable, or choose another folder. After errors, systems mount disks read-only: " +
				"read the kernel's log.")
	case why == overQuota:
		return fault.New(fault.Unavailable, "%s has reached a quota%s.", whose, at).
			WithDetail("Remove files that are no longer needed, or raise the quota.")
	case usage.outOfFiles():
		return fault.New(fault.Unavailable, "%s has room for no more files: 0 of %d are free%s.", whose,
			usage.TotalFiles, at).
			WithDetail("Remove files that are no longer needed, however small. %s", larger(usage, "nr_inodes"))
	case usage.Total == 0:
		return fault.New(fault.Unavailable, "%s is full%s.", whose, at).
			WithDetail("Remove files that are no longer needed, or enlarge it.")
	case !usage.isFull(): // something was removed since
		return fault.New(fault.Unavailable, "%s was full: %s now free%s.", whose, figures(usage.Free, usage.Total), at).
			WithDetail("Remove files that are no longer needed. %s", larger(usage, "size"))
	}
	return fault.New(fault.Unavailable, "%s is full: %s free%s.", whose, figures(usage.Free, usage.Total), at).
		WithDetail("Remove files that are no longer needed. %s", larger(usage, "size"))
}

// larger says how to enlarge a file system.
func larger(usage Usage, option string) string {
	if usage.InMemory {
		return "It is in memory (tmpfs): a larger one is mounted with another " + option + "."
	}
	return "If they are all needed, enlarge it."
}

// figures prints two sizes in the unit of the larger one.
func figures(free, total uint64) string {
	unit, name := uint64(1), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if total < 1000*unit {
			break
		}
		unit, name = unit*1000, next
	}
	return fmt.Sprintf("%s of %s %s", short(free, unit), short(total, unit), name)
}

// short prints a number of units with three digits at most, and rounds down: what is left is not less than what is
// printed.
func short(n, unit uint64) string {
	if whole := n / unit; whole >= 10 || n%unit == 0 {
		return fmt.Sprint(whole)
	}
	return strings.TrimSuffix(fmt.Sprintf("%d.%d", n/unit, n%unit*10/unit), ".0")
}
