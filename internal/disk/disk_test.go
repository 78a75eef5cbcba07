//go:build linux

package disk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/disk/disktest"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestExplain fills, exhausts and closes file systems of its own, and reads what users are told.
func TestExplain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options string
		spoil   func(t *testing.T, dir string)
		want    string
	}{
		"a full disk": {"size=2m", func(t *testing.T, dir string) { disktest.Fill(t, filepath.Join(dir, "ballast")) },
			`^The provisioner's disk is full: 0 of 2 MB free in DIR/job\. Remove files that are no longer needed\. It is in memory \(tmpfs\): a larger one is mounted with another size\.$`},
		"a disk without room for files": {"size=2m,nr_inodes=5", func(t *testing.T, dir string) { disktest.FillFiles(t, dir) },
			`^The provisioner's disk has room for no more files: 0 of 5 are free in DIR/job\. Remove files that are no longer needed, however small\. .*nr_inodes\.$`},
		"a read-only disk": {"size=2m", func(t *testing.T, dir string) {
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=2m"); err != nil {
				t.Fatal(err)
			}
		}, `^The provisioner's disk is read-only in DIR/job\. Mount it writable, or choose another folder\. `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := disktest.Small(t, c.options)
			job := filepath.Join(dir, "job")
			if err := os.Mkdir(job, 0o700); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, dir)
			raw := os.WriteFile(filepath.Join(job, "j0"), make([]byte, 1<<20), 0o600)
			if raw == nil {
				t.Fatal("the file could be written")
			}
			err := disk.Explain(fmt.Errorf("note job: %w", raw), "The provisioner's disk", "/")
			want := strings.ReplaceAll(c.want, "DIR", regexp.QuoteMeta(dir))
			if !regexp.MustCompile(want).MatchString(err.Error()) {
				t.Errorf("explained as\n%s, want\n%s", err, want)
			}
			if fault.CodeOf(err) != fault.Unavailable || !errors.Is(err, raw) {
				t.Errorf("code %s, cause %v", fault.CodeOf(err), errors.Is(err, raw))
			}
			if again := disk.Explain(fmt.Errorf("run job: %w", err), "This machine's disk"); fault.As(again).Error() != err.Error() {
				t.Errorf("explained again as %s", fault.As(again))
			}
			// What a program printed counts only if the disk is in that state.
			text := "│ Error: write terraform.tfstate: " + errors.Unwrap(raw).Error()
			if printed := disk.ExplainText(text, "The provisioner's disk", "/", job); printed == nil || printed.Error() != err.Error() {
				t.Errorf("printed text is explained as %v, want %v", printed, err)
			}
			if other := disk.ExplainText(text, "The provisioner's disk", disktest.Small(t, "size=2m")); other != nil {
				t.Errorf("the text of another machine is explained as %v", other)
			}
		})
	}
}

// TestExplainWithoutFolder checks errors that name no file, and those that are about something else.
func TestExplainWithoutFolder(t *testing.T) {
	t.Parallel()
	free := disktest.Small(t, "size=3m")
	for _, c := range []struct {
		err  error
		dirs []string
		want string
	}{
		{syscall.ENOSPC, nil, "X is full. Remove files that are no longer needed, or enlarge it."},
		{syscall.ENOSPC, []string{free}, "X was full: 3.1 of 3.1 MB now free in " + free + "."},
		{&os.PathError{Op: "openat", Path: "in/a/root", Err: syscall.ENOSPC}, []string{filepath.Join(free, "not", "there")}, "now free in " + free + "."},
		{&os.LinkError{Op: "rename", Old: "/a", New: filepath.Join(free, "b"), Err: syscall.ENOSPC}, []string{"/"}, "now free in " + free + "."},
		{fmt.Errorf("write: %w", syscall.EDQUOT), []string{free}, "X has reached a quota in " + free + ". Remove files that are no longer needed, or raise the quota."},
	} {
		err := disk.Explain(c.err, "X", c.dirs...)
		if fault.As(err) == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v is explained as %v, want %s", c.err, err, c.want)
		}
	}
	for _, err := range []error{nil, syscall.EACCES, errors.New("no space left on device"), fault.New(fault.Invalid, "Choose another folder: %w", syscall.EROFS)} {
		if got := disk.Fault(err, "X", free); got != nil || disk.Explain(err, "X", free) != err { //nolint:errorlint // the same error
			t.Errorf("%v is explained as %v", err, got)
		}
	}
	if got := disk.Room(filepath.Join(free, "not", "there")); got != "3.1 of 3.1 MB free" {
		t.Errorf("the room is %q", got)
	}
	if got := disk.ExplainText("no such file", "X", free); got != nil {
		t.Errorf("a text about no disk is explained as %v", got)
	}
}
