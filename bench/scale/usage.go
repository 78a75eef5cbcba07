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

// memory returns the resident set of a process, in bytes, and its proportional share of it, 0 if this account may not
// know.
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

// cores is how the machine's processors have spent their time since it started, in ticks of /proc/stat. See
// proc_stat(5).
type cores struct {
	idle   uint64 // without work
	disk   uint64 // without work that did not wait for a disk
	stolen uint64 // taken by the host of this virtual machine
	all    uint64
}

// readCores reads how the processors have spent their time.
func readCores() (cores, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cores{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const all = 9 // "cpu", user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice
	if len(fields) < all {
		return cores{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks [all]uint64
	var c cores
	for i := 1; i < all; i++ {
		if ticks[i], err = strconv.ParseUint(fields[i], 10, 64); err != nil {
			return cores{}, err
		}
		c.all += ticks[i]
	}
	c.idle, c.disk, c.stolen = ticks[4], ticks[5], ticks[8]
	return c, nil
}

// since says how the processors spent their time since earlier. A wall time says something of the product only where
// they had little else to do: ours is the CPU time of the server, the database and the load, in the same time.
func (c cores) since(earlier cores, took, ours time.Duration) string {
	all := float64(c.all - earlier.all)
	if all == 0 {
		return "processors: unknown"
	}
	share := func(ticks uint64) float64 { return 100 * float64(ticks) / all }
	idle, disk, stolen := share(c.idle-earlier.idle), share(c.disk-earlier.disk), share(c.stolen-earlier.stolen)
	measured := 100 * ours.Seconds() / took.Seconds() / float64(runtime.NumCPU())
	return fmt.Sprintf("processors: measured %.0f %%, other programs %.0f %%, idle %.0f %%, disk %.0f %%, taken by the host %.0f %%",
		measured, max(0, 100-measured-idle-disk-stolen), idle, disk, stolen)
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
