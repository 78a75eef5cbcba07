package terraform

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// WorkspaceLimits bound the processes of a workspace that is a process of this host, as JobLimits do those of a job: with control groups all
// of them together, otherwise the memory of each process, and the number of processes if the kernel counts them. 0 means no bound.
type WorkspaceLimits struct {
	Memory    uint64 `json:"memory,omitempty"`    // bytes, including its private temporary folders
	Processes uint64 `json:"processes,omitempty"` // at one time, including threads
	Temporary uint64 `json:"temporary,omitempty"` // bytes in each of its private temporary folders
}

// DefaultWorkspaceLimits returns those of a job.
func DefaultWorkspaceLimits() WorkspaceLimits {
	l := DefaultJobLimits()
	return WorkspaceLimits{Memory: l.Memory, Processes: l.Processes, Temporary: l.Disk}
}

// maxAgentLog bounds the log of a workspace's process. The sandbox removes the older half when it is full.
const maxAgentLog = 16 << 20

// within returns the limits that a template asks for, or else the operator's, and a fault if the template asks for more than those.
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
			return l, fault.New(fault.Invalid, "the template asks for %s %s for its workspace, and this provisioner allows %s: ask for less, or raise --provisioner-workspace-%s of the provisioner",
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

// cgroup returns the control groups of a workspace with their bounds, or nil without control groups.
func (s spaces) cgroup(id uuid.UUID, l WorkspaceLimits) (*cgroup, error) {
	if !s.e.cgroups {
		return nil, nil
	}
	return openCgroup("workspace-"+id.String(), JobLimits{Memory: l.Memory, Processes: l.Processes})
}

// leaveCgroup removes the control groups of a workspace after its processes have ended, and ends those that have not.
func (s spaces) leaveCgroup(id uuid.UUID) error {
	group, err := s.cgroup(id, WorkspaceLimits{})
	if group == nil || err != nil {
		return err
	}
	if err := group.kill(); err != nil {
		return err
	}
	return group.leave(patience)
}
