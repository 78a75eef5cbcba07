package host

import (
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/ask"
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

// WorkspaceLimits bound the processes of a workspace.
type WorkspaceLimits = ask.Limits

// maxAgentLog bounds the log of a workspace's process. The sandbox removes the older half when it is full.
const maxAgentLog = 16 << 20

// bounded returns the limits l that a template asks for, or else the operator's, and a fault if the template asks for
// more than those.
func bounded(l, operator WorkspaceLimits) (WorkspaceLimits, error) {
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

// lesser returns the lesser of two bounds, where 0 means none.
func lesser(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
