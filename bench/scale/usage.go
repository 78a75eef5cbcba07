package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticks is the kernel's USER_HZ, which is 100 on every architecture that Go supports.
const ticks = 100

// stat is what /proc/PID/stat tells of a process.
type stat struct {
	parent      int
	own, reaped time.Duration // CPU of the process, and of children that it has waited for
}

func statOf(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	_, rest, ok := strings.Cut(string(text), ") ") // the name before it may contain anything
	fields := strings.Fields(rest)
	if !ok || len(fields) < 15 {
		return stat{}, fmt.Errorf("cannot read /proc/%d/stat", pid)
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // the kernel wrote it
		return n
	}
	return stat{
		parent: int(number(1)),
		own:    time.Duration(number(11)+number(12)) * time.Second / ticks,
		reaped: time.Duration(number(13)+number(14)) * time.Second / ticks,
	}, nil
}

// cpu returns the CPU time of a process so far.
func cpu(pid int) (time.Duration, error) {
	s, err := statOf(pid)
	return s.own, err
}

// familyCPU returns the CPU time of a process and its children so far.
func familyCPU(pid int) (time.Duration, error) {
	s, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	sum := s.own + s.reaped
	names, err := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		child, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if c, err := statOf(child); err == nil && c.parent == pid { // else it has ended meanwhile
			sum += c.own
		}
	}
	return sum, err
}

// memory returns the resident set of a process, in bytes, and its proportional share of it, 0 if this account may not know.
func memory(pid int) (resident, share int64, err error) {
	if resident, err = kilobytes(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:"); err != nil {
		return 0, 0, err
	}
	if share, err = kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:"); os.IsPermission(err) {
		return resident, 0, nil
	}
	return resident, share, err
}

// kilobytes reads a line "Name: 12 kB" and returns it in bytes.
func kilobytes(file, name string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// descriptors returns how many files a process has open, 0 if this account may not know.
func descriptors(pid int) int {
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	return len(names)
}

// load returns the load averages of the machine.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

func machine() string {
	total, err := kilobytes("/proc/meminfo", "MemTotal:")
	if err != nil {
		return fmt.Sprintf("%d cores", runtime.NumCPU())
	}
	return fmt.Sprintf("%d cores, %d GB, %s/%s", runtime.NumCPU(), total>>30, runtime.GOOS, runtime.GOARCH)
}

// quantile returns a quantile of the times, 0 if there are none. It sorts them.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(int(q*float64(len(times))), len(times)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// pause blocks for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until asks done every tenth of a second until it is true.
func until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: not within %s", what, limit))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}
