package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// diskEvery is how often the disk usage of a job is checked.
	diskEvery = 250 * time.Millisecond
	// maxJobFiles is how many files a job's folders may hold.
	maxJobFiles = 1 << 20
)

// over returns the failure of a job that exceeded a limit.
func over(what, bound, flag string) error {
	return fault.New(fault.Invalid,
		"the job used more than %s of %s: make it smaller, or raise --%s of the provisioner", bound, what, flag)
}

// Bounded runs one Terraform command within the job's limits. The error names the limit that ended it.
func (s *Slot) Bounded(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := s.host.opts.JobLimits
	var killed, refused uint64
	if s.cgroup != nil {
		killed, refused = s.cgroup.hits()
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		if l.Disk == 0 {
			return
		}
		tick := time.NewTicker(diskEvery)
		defer tick.Stop()
		var next time.Time
		var free []uint64
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			left := s.free()
			if now.Before(next) && !fell(free, left, l.Disk/2) {
				continue
			}
			free = left
			if s.full(l.Disk) {
				cancel(over("disk", size(l.Disk), "provisioner-job-disk"))
				return
			}
			// the host's temporary folders may hold much, all of which full looks at
			next = time.Now().Add(4 * time.Since(now))
		}
	}()
	err := run(ctx)
	full := l.Disk > 0 && err != nil && s.full(l.Disk-l.Disk/64)
	if cause, ok := errors.AsType[*fault.Error](context.Cause(ctx)); ok && err != nil {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	<-watching
	if err == nil || s.cgroup == nil && !full {
		return err
	}
	var nowKilled, nowRefused uint64
	if s.cgroup != nil {
		nowKilled, nowRefused = s.cgroup.hits()
	}
	switch {
	case nowKilled > killed:
		return errors.Join(over("memory", size(l.Memory), "provisioner-job-memory"), err)
	case nowRefused > refused:
		return errors.Join(over("the processes that may run at one time", fmt.Sprint(l.Processes),
			"provisioner-job-processes"), err)
	case full:
		return errors.Join(over("disk", size(l.Disk), "provisioner-job-disk"), err)
	}
	return err
}

// free returns how many bytes are free on the disks that the job may write to.
func (s *Slot) free() []uint64 {
	dirs := []string{s.Work()}
	if s.host.isolation.accounts != nil && s.host.isolation.bubblewrap == "" {
		dirs = slices.Concat(dirs, temporaryDirs)
	}
	free := make([]uint64, len(dirs))
	for n, dir := range dirs {
		if usage, err := disk.Look(dir); err == nil {
			free[n] = usage.Free
		}
	}
	return free
}

// fell reports whether one of the disks has lost more than bytes of its free space.
func fell(before, now []uint64, bytes uint64) bool {
	for n := range before {
		if now[n] < before[n] && before[n]-now[n] > bytes {
			return true
		}
	}
	return false
}

// full reports whether the job's folders, and the temporary folders that it shares with the host, hold more of it than
// bound, or more than maxJobFiles files.
func (s *Slot) full(bound uint64) bool {
	var used, files uint64
	if a := s.host.isolation.accounts; a != nil && s.host.isolation.bubblewrap == "" {
		used, files = a.leavings(s.uid).Usage()
	}
	for _, dir := range []string{s.Work(), s.home(), s.Tmp()} {
		root, err := os.OpenRoot(dir)
		if err != nil {
			continue // between two commands of the job
		}
		err = fs.WalkDir(root.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it went away while we looked
			}
			info, err := entry.Info()
			if err != nil {
				return nil //nolint:nilerr // as above
			}
			files++
			if stat, ok := statusOf(info); ok {
				used += stat.used
			}
			if used > bound || files > maxJobFiles {
				return fs.SkipAll
			}
			return nil
		})
		root.Close()
		if err != nil {
			continue
		}
	}
	return used > bound || files > maxJobFiles
}

// HintAboutProcesses returns a remedy for a job that could not start a process, or "" for other errors. Control groups
// report it with certainty (bounded); a resource limit shows only in what programs print.
func (s *Slot) HintAboutProcesses(text string) string {
	bound := s.host.opts.JobLimits.Processes
	if bound == 0 || s.cgroup != nil || !s.host.isolation.countsProcesses() {
		return ""
	}
	text = strings.ToLower(text)
	for _, complaint := range []string{"cannot fork", "can't fork", "fork: retry",
		"fork: resource temporarily unavailable", "failed to create new os thread"} {
		if strings.Contains(text, complaint) {
			return fmt.Sprintf("The job may run %d processes and threads at one time: make it smaller, or raise "+
				"--provisioner-job-processes of the provisioner", bound)
		}
	}
	return ""
}
