package host

import "time"

// DefaultWorkspaceLimits returns those of a job.
func DefaultWorkspaceLimits() WorkspaceLimits {
	l := DefaultJobLimits()
	return WorkspaceLimits{Memory: l.Memory, Processes: l.Processes, Temporary: l.Disk}
}

// DefaultJobLimits returns limits that fit a provisioner's machine: half of its memory and, for everything else, more
// than a build needs.
func DefaultJobLimits() JobLimits {
	return JobLimits{Memory: machineMemory() / 2, Processes: 4096, Disk: 2 << 30, Timeout: 4 * time.Hour}
}
