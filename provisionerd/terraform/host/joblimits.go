package host

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// JobLimits bound all processes of a job together; 0 means no bound. Without the kernel's control groups, memory is
// bounded for each process instead, processors are not bounded, and processes are bounded if the kernel counts a job's
// processes separately (countsProcesses).
type JobLimits struct {
	Memory    uint64        // bytes, including its private temporary folders
	Processes uint64        // at one time, including threads
	CPUs      float64       // processors' worth of time
	Disk      uint64        // bytes in the job's folders, in each of its temporary ones, and in one file
	Timeout   time.Duration // from the start of the job; Terraform is interrupted then, and killed a minute later
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

// WorkspaceLimits bound the processes of a workspace that is a process of this host, as JobLimits do those of a job:
// with control groups all of them together, otherwise the memory of each process, and the number of processes if the
// kernel counts them. 0 means no bound.
type WorkspaceLimits struct {
	Memory    uint64 `json:"memory,omitempty"`    // bytes, including its private temporary folders
	Processes uint64 `json:"processes,omitempty"` // at one time, including threads
	Temporary uint64 `json:"temporary,omitempty"` // bytes in each of its private temporary folders
}

// maxAgentLog bounds the log of a workspace's process. The sandbox removes the older half when it is full.
const maxAgentLog = 16 << 20

// within returns the limits that a template asks for, or else the operator's, and a fault if the template asks for more
// than those.
func (l WorkspaceLimits) within(operator WorkspaceLimits) (WorkspaceLimits, error) {
	for _, each := range []struct {
		asked       *uint64
		allowed     uint64
		what, flags string
		text        func(uint64) string
	}{
		{&l.Memory, operator.Memory, "of memory", "memory", size},
		{&l.Processes, operator.Processes, "processes", "processes", func(n uint64) string { return fmt.Sprint(n) }},
		{&l.Temporary, operator.Temporary, "in each temporary folder", "tmp", size},
	} {
		switch {
		case *each.asked == 0:
			*each.asked = each.allowed
		case each.allowed > 0 && *each.asked > each.allowed:
			return l, fault.New(fault.Invalid,
				"the template asks for %s %s for its workspace, and this provisioner allows %s: ask for less, or "+
					"raise --provisioner-workspace-%s of the provisioner",
				each.text(*each.asked), each.what, each.text(each.allowed), each.flags)
		}
	}
	return l, nil
}

// ParseSize reads a number of bytes such as 4GiB, 512MiB or 1000.
func ParseSize(text string) (uint64, error) {
	factor := uint64(1)
	number := strings.TrimSpace(text)
	for unit, bytes := range map[string]uint64{"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10} {
		if digits, ok := strings.CutSuffix(number, unit); ok {
			number, factor = strings.TrimSpace(digits), bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > 1<<62/factor {
		return 0, fmt.Errorf("%q is not a size in bytes such as 4GiB or 512MiB", text)
	}
	return n * factor, nil
}

// lesser returns the lesser of two bounds, where 0 means none.
func lesser(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
