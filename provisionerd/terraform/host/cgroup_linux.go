package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup bounds what all processes of a slot use together with the kernel's control groups: version 2, or version 1 for
// a controller that version 2 lacks.
type cgroup struct {
	memory, pids, cpu string // folders; empty for an unavailable controller
	v2                bool
}

// openCgroup creates the groups with a name, or reuses existing ones, and sets their bounds. It omits a controller that
// is unavailable; the error then reports which, and why.
func openCgroup(name string, limits JobLimits) (*cgroup, error) {
	own, err := ownCgroups()
	if err != nil {
		return nil, err
	}
	c := &cgroup{}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		c.v2 = true
		dir, err := unifiedGroup(own[""], name)
		if err != nil {
			return c, err
		}
		c.memory, c.pids, c.cpu = dir, dir, dir
	} else {
		var errs []error
		for controller, to := range map[string]*string{"memory": &c.memory, "pids": &c.pids, "cpu": &c.cpu} {
			path, ok := own[controller]
			dir := filepath.Join(cgroupRoot, controller, path, "codermesh-"+name)
			if !ok {
				errs = append(errs, fmt.Errorf("there is no cgroup controller %s", controller))
			} else if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				errs = append(errs, fmt.Errorf("make cgroup: %w", err))
			} else {
				*to = dir
			}
		}
		if len(errs) > 0 {
			return c, errors.Join(errs...)
		}
	}
	return c, c.bound(limits)
}

// ownCgroups returns this process's groups by controller; "" is the group of version 2.
func ownCgroups() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	own := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	return own, nil
}

// unifiedGroup creates a group of version 2 with all controllers. Only leaves may contain processes, so this process
// first moves into one if its group was delegated to it alone; otherwise the group is created at the root.
func unifiedGroup(own, name string) (string, error) {
	base := filepath.Join(cgroupRoot, own)
	if filepath.Base(own) == "codermesh-daemon" {
		base = filepath.Dir(base)
	} else if own != "/" {
		if procs, err := os.ReadFile(filepath.Join(base, "cgroup.procs")); err == nil &&
			strings.TrimSpace(string(procs)) == strconv.Itoa(os.Getpid()) {
			leaf := filepath.Join(base, "codermesh-daemon")
			if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return "", fmt.Errorf("make cgroup: %w", err)
			}
			if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
				return "", fmt.Errorf("join cgroup: %w", err)
			}
		} else {
			base = cgroupRoot
		}
	}
	const controllers = "+memory +pids +cpu"
	if err := os.WriteFile(filepath.Join(base, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
		return "", fmt.Errorf("enable cgroup controllers: %w", err)
	}
	dir := filepath.Join(base, "codermesh-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make cgroup: %w", err)
	}
	return dir, nil
}

// bound sets the limits; 0 means none.
func (c *cgroup) bound(l JobLimits) error {
	const period = 100_000 // µs
	quota := int64(l.CPUs * period)
	set := func(dir, file, value string) error {
		if dir == "" {
			return nil
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
			return fmt.Errorf("bound cgroup: %w", err)
		}
		return nil
	}
	number := func(n uint64, none string) string {
		if n == 0 {
			return none
		}
		return strconv.FormatUint(n, 10)
	}
	if c.v2 {
		bandwidth := "max"
		if quota > 0 {
			bandwidth = fmt.Sprint(quota, " ", period)
		}
		return errors.Join(set(c.memory, "memory.max", number(l.Memory, "max")),
			set(c.pids, "pids.max", number(l.Processes, "max")),
			set(c.cpu, "cpu.max", bandwidth))
	}
	if quota == 0 {
		quota = -1
	}
	return errors.Join(set(c.memory, "memory.limit_in_bytes", number(l.Memory, "-1")),
		set(c.pids, "pids.max", number(l.Processes, "max")),
		set(c.cpu, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)))
}

// procs returns the files through which a process joins.
func (c *cgroup) procs() []string {
	var names []string
	for _, dir := range []string{c.memory, c.pids, c.cpu} {
		if dir != "" && (!c.v2 || len(names) == 0) {
			names = append(names, filepath.Join(dir, "cgroup.procs"))
		}
	}
	return names
}

// hits returns how often the kernel killed processes for memory, and refused to start one for their number, since the
// group was created.
func (c *cgroup) hits() (memory, processes uint64) {
	events := "memory.events"
	if !c.v2 {
		events = "memory.oom_control"
	}
	return counter(c.memory, events, "oom_kill"), counter(c.pids, "pids.events", "max")
}

// counter reads the value in a line "name value" of a file, or 0.
func counter(dir, file, name string) uint64 {
	if dir == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.ParseUint(value, 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// kill ends every process of the group at once, including one that is forking. Only version 2 can (Linux 5.14);
// elsewhere it does nothing.
func (c *cgroup) kill() error {
	if !c.v2 || c.memory == "" {
		return nil
	}
	err := os.WriteFile(filepath.Join(c.memory, "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill cgroup: %w", err)
	}
	return nil
}

// leave removes the groups once the processes in them have ended. Killed processes take a moment.
func (c *cgroup) leave(patience time.Duration) error {
	for _, dir := range []string{c.memory, c.pids, c.cpu} {
		for deadline := time.Now().Add(patience); dir != ""; time.Sleep(time.Millisecond) {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
		}
	}
	return nil
}

// machineMemory returns this machine's memory in bytes.
func machineMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

// close removes the groups. A group in which a process is still ending stays for the next executor of this folder.
func (c *cgroup) close() {
	for _, dir := range []string{c.memory, c.pids, c.cpu} {
		if dir != "" {
			_ = os.Remove(dir)
		}
	}
}
