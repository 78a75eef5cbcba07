//go:build !linux

package host

import (
	"errors"
	"time"
)

type cgroup struct{}

func openCgroup(string, JobLimits) (*cgroup, error) { return nil, errors.ErrUnsupported }

func (c *cgroup) procs() []string { return nil }

func (c *cgroup) hits() (memory, processes uint64) { return 0, 0 }

func (c *cgroup) kill() error { return nil }

func (c *cgroup) close() {}

func (c *cgroup) leave(time.Duration) error { return nil }

func machineMemory() uint64 { return 0 }
