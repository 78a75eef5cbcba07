package terraform

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// JobLimits bound all processes of a job together; 0 means no bound. Without the kernel's control groups, memory is bounded for each
// process instead, processors are not bounded, and processes are bounded if the kernel counts a job's processes separately
// (countsProcesses).
type JobLimits struct {
	Memory    uint64        // bytes, including its private temporary folders
	Processes uint64        // at one time, including threads
	CPUs      float64       // processors' worth of time
	Disk      uint64        // bytes in the job's folders, in each of its temporary ones, and in one file
	Timeout   time.Duration // from the start of the job; Terraform is interrupted then, and killed a minute later
}

// DefaultJobLimits returns limits that fit a provisioner's machine: half of its memory and, for everything else, more than a build needs.
func DefaultJobLimits() JobLimits {
	return JobLimits{Memory: machineMemory() / 2, Processes: 4096, Disk: 2 << 30, Timeout: 4 * time.Hour}
}

const (
	// timeoutGrace is how long a job that exceeded its time limit may take to end.
	timeoutGrace = time.Minute
	// diskEvery is how often the disk usage of a job is checked.
	diskEvery = 250 * time.Millisecond
	// maxJobFiles is how many files a job's folders may hold.
	maxJobFiles = 1 << 20
)

// limitTime stops the job when its time is over, and kills it if it does not end then. The returned function frees the timer's resources.
func (r *runner) limitTime(ctx context.Context) (context.Context, func()) {
	limit := r.e.opts.JobLimits.Timeout
	if limit <= 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	asked, merged := r.stop, make(chan struct{})
	r.stop = merged
	var watcher sync.WaitGroup
	watcher.Go(func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-asked:
			close(merged)
			return
		case <-timer.C:
			close(merged)
		}
		timer.Reset(timeoutGrace)
		select {
		case <-ctx.Done():
		case <-timer.C:
			cancel()
		}
	})
	return ctx, func() {
		cancel()
		watcher.Wait()
	}
}

// tookTooLong reports whether the job was stopped only because of its time limit.
func (r *runner) tookTooLong(asked <-chan struct{}) bool { return stopped(r.stop) && !stopped(asked) }

// cgroupName returns the name of a slot's control groups.
func (e *Executor) cgroupName(n int) string {
	sum := sha256.Sum256([]byte(e.runDir))
	return fmt.Sprintf("%x-%d", sum[:5], n)
}

// chooseCgroups determines whether control groups bound jobs here.
func (e *Executor) chooseCgroups() {
	l, w := e.opts.JobLimits, e.opts.WorkspaceLimits
	if !e.isolation.confined() || l.Memory == 0 && l.Processes == 0 && l.CPUs == 0 && w.Memory == 0 && w.Processes == 0 {
		return
	}
	group, err := openCgroup(e.cgroupName(-1), l)
	if group != nil {
		group.close()
	}
	if e.cgroups = err == nil; err != nil {
		unbound := "its processors"
		if !e.isolation.countsProcesses() {
			unbound += " and the number of its processes"
		}
		e.isolation.concerns = append(e.isolation.concerns, fmt.Sprintf("the memory of a job is bounded for each of its processes only, and %s not at all: %s",
			unbound, strings.ReplaceAll(err.Error(), "\n", ", ")))
	}
}

// hintAboutProcesses returns a remedy for a job that could not start a process, or "" for other errors. Control groups report it with
// certainty (bounded); a resource limit shows only in what programs print.
func (r *runner) hintAboutProcesses(text string) string {
	bound := r.e.opts.JobLimits.Processes
	if bound == 0 || r.slot.cgroup != nil || !r.e.isolation.countsProcesses() {
		return ""
	}
	text = strings.ToLower(text)
	for _, complaint := range []string{"cannot fork", "can't fork", "fork: retry", "fork: resource temporarily unavailable", "failed to create new os thread"} {
		if strings.Contains(text, complaint) {
			return fmt.Sprintf("The job may run %d processes and threads at one time: make it smaller, or raise --provisioner-job-processes of the provisioner", bound)
		}
	}
	return ""
}

// over returns the failure of a job that exceeded a limit.
func over(what, bound, flag string) error {
	return fault.New(fault.Invalid, "the job used more than %s of %s: make it smaller, or raise --%s of the provisioner", bound, what, flag)
}

// size formats a number of bytes for users.
func size(n uint64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	default:
		return fmt.Sprintf("%d MiB", n>>20)
	}
}

// bounded runs one Terraform command within the job's limits. The error names the limit that ended it.
func (s *slot) bounded(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := s.e.opts.JobLimits
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
			next = time.Now().Add(4 * time.Since(now)) // the host's temporary folders may hold much, all of which full looks at
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
		return errors.Join(over("the processes that may run at one time", fmt.Sprint(l.Processes), "provisioner-job-processes"), err)
	case full:
		return errors.Join(over("disk", size(l.Disk), "provisioner-job-disk"), err)
	}
	return err
}

// free returns how many bytes are free on the disks that the job may write to.
func (s *slot) free() []uint64 {
	dirs := []string{s.work()}
	if s.e.isolation.accounts != nil && s.e.isolation.bubblewrap == "" {
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

// full reports whether the job's folders, and the temporary folders that it shares with the host, hold more of it than bound, or more than
// maxJobFiles files.
func (s *slot) full(bound uint64) bool {
	var used, files uint64
	if a := s.e.isolation.accounts; a != nil && s.e.isolation.bubblewrap == "" {
		used, files = a.leavings(s.uid).Usage()
	}
	for _, dir := range []string{s.work(), s.home(), s.tmp()} {
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
