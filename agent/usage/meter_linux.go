package usage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

func rootFS() fs.FS { return os.DirFS("/") }

// userHz is the unit of /proc/stat, which is the same on every architecture of Linux (USER_HZ).
const userHz = 100

// ContainerCPU returns how many cores the container uses now. It blocks for a quarter of a second.
func (m *Meter) ContainerCPU(ctx context.Context) (Amount, error) {
	if !m.InContainer() {
		return Amount{}, ErrNoContainer
	}
	used, err := rate(ctx, m.groupCPUSeconds)
	return Amount{used, m.groupCPULimit(), "cores"}, err
}

// hostCPUSeconds returns the time that processors were busy: the first line of /proc/stat without idle and iowait.
func (m *Meter) hostCPUSeconds() (float64, error) {
	data, err := fs.ReadFile(m.root, "proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("read /proc/stat: unexpected line %q", line)
	}
	var busy float64
	for i, field := range f[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			busy += n
		}
	}
	return busy / userHz, nil
}

// HostMemory returns the machine's memory in use, that is, everything that is not available to a new program.
func (m *Meter) HostMemory() (Amount, error) {
	data, err := fs.ReadFile(m.root, "proc/meminfo")
	if err != nil {
		return Amount{}, err
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 {
			if n, err := strconv.ParseFloat(f[1], 64); err == nil {
				values[f[0]] = n * 1024
			}
		}
	}
	total, ok := values["MemTotal:"]
	available, haveAvailable := values["MemAvailable:"]
	if !ok || !haveAvailable {
		return Amount{}, errors.New("read /proc/meminfo: it has no MemTotal and MemAvailable")
	}
	return Amount{total - available, &total, "B"}, nil
}

// InContainer reports whether the process seems to run in a container: a runtime has left its marker file, or the
// process is in its own control group with a limit.
func (m *Meter) InContainer() bool {
	for _, mark := range []string{".dockerenv", "run/.containerenv", "run/systemd/container",
		"var/run/secrets/kubernetes.io"} {
		if _, err := fs.Stat(m.root, mark); err == nil {
			return true
		}
	}
	if data, err := fs.ReadFile(m.root, "proc/1/environ"); err == nil &&
		bytes.Contains(append([]byte{0}, data...), []byte("\x00container=")) {
		return true
	}
	data, err := fs.ReadFile(m.root, "proc/1/cgroup")
	if err != nil {
		return false
	}
	for _, name := range []string{"docker", "kubepods", "containerd", "lxc", "libpod", "sysbox"} {
		if bytes.Contains(data, []byte(name)) {
			return true
		}
	}
	return false
}

const groups = "sys/fs/cgroup"

// v2 reports whether the control groups are of version 2.
func (m *Meter) v2() bool {
	_, err := fs.Stat(m.root, groups+"/cgroup.controllers")
	return err == nil
}

// file reads a file of this process's control group: below its path, or at the root, which in a container is its own
// group.
func (m *Meter) file(controller, name string) (string, error) {
	base, own := groups, ""
	if data, err := fs.ReadFile(m.root, "proc/self/cgroup"); err == nil {
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			f := strings.SplitN(lines.Text(), ":", 3)
			if len(f) == 3 && (f[0] == "0" && m.v2() || hasController(f[1], controller)) {
				own = f[2]
			}
		}
	}
	if !m.v2() {
		base = path.Join(groups, controller)
	}
	for _, candidate := range []string{path.Join(base, own, name), path.Join(base, name)} {
		if data, err := fs.ReadFile(m.root, candidate); err == nil {
			return strings.TrimSpace(string(data)), nil
		}
	}
	return "", fmt.Errorf("%w: its control group has no %s", ErrNoContainer, name)
}

func hasController(list, name string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if part == name {
			return true
		}
	}
	return false
}

func (m *Meter) number(controller, name string) (float64, error) {
	text, err := m.file(controller, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// groupCPUSeconds returns the processor time that the container has used: cpu.stat (version 2), cpuacct.usage (version
// 1).
func (m *Meter) groupCPUSeconds() (float64, error) {
	if !m.v2() {
		ns, err := m.number("cpuacct", "cpuacct.usage")
		return ns / 1e9, err
	}
	text, err := m.file("cpu", "cpu.stat")
	if err != nil {
		return 0, err
	}
	us, ok := field(text, "usage_usec")
	if !ok {
		return 0, errors.New("read cpu.stat: it has no usage_usec")
	}
	return us / 1e6, nil
}

// groupCPULimit returns how many cores the container may use, or nil if there is no limit.
func (m *Meter) groupCPULimit() *float64 {
	var quota, period float64
	if m.v2() {
		text, err := m.file("cpu", "cpu.max")
		f := strings.Fields(text)
		if err != nil || len(f) != 2 || f[0] == "max" {
			return nil
		}
		quota, _ = strconv.ParseFloat(f[0], 64) // an invalid value means no limit
		period, _ = strconv.ParseFloat(f[1], 64)
	} else {
		var err error
		if quota, err = m.number("cpu", "cpu.cfs_quota_us"); err != nil {
			return nil
		}
		if period, err = m.number("cpu", "cpu.cfs_period_us"); err != nil {
			return nil
		}
	}
	if quota <= 0 || period <= 0 {
		return nil
	}
	cores := quota / period
	return &cores
}

// unlimited is more memory than any machine has: version 1 writes a number near 2^63 for "no limit".
const unlimited = 1 << 60

// ContainerMemory returns the container's memory in use, without caches that the kernel can free at once.
func (m *Meter) ContainerMemory() (Amount, error) {
	if !m.InContainer() {
		return Amount{}, ErrNoContainer
	}
	current, limit, reclaimable := "memory.current", "memory.max", "inactive_file"
	if !m.v2() {
		current, limit, reclaimable = "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"
	}
	used, err := m.number("memory", current)
	if err != nil {
		return Amount{}, err
	}
	if text, err := m.file("memory", "memory.stat"); err == nil {
		if inactive, ok := field(text, reclaimable); ok {
			used = math.Max(used-inactive, 0)
		}
	}
	out := Amount{Used: used, Unit: "B"}
	if total, err := m.number("memory", limit); err == nil && total > 0 && total < unlimited {
		out.Total = &total
	}
	return out, nil
}

// field returns the value after a name in lines of "name value".
func field(text, name string) (float64, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, err := strconv.ParseFloat(f[1], 64)
			return n, err == nil
		}
	}
	return 0, false
}
