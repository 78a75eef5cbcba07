// Package usage measures processor, memory and disk usage of the machine, or of the container that this process runs
// in. It knows neither workspaces nor agents.
//
// It reads /proc and the cgroup files itself: github.com/containerd/cgroups would add 1.2 MB to the slim binary.
package usage

import (
	"errors"
	"io/fs"
)

// Amount is how much of a resource is used.
type Amount struct {
	Used  float64  `json:"used"`
	Total *float64 `json:"total"` // nil if there is no limit
	Unit  string   `json:"unit"`  // "cores", "B"
}

// Percent returns how much of the total is used, from 0 to 100. ok is false if there is no limit.
func (a Amount) Percent() (percent float64, ok bool) {
	if a.Total == nil || *a.Total <= 0 {
		return 0, false
	}
	return min(max(a.Used / *a.Total * 100, 0), 100), true
}

// ErrNoContainer is returned if the process has no control group of its own, or cannot read it.
var ErrNoContainer = errors.New("this process is in no container")

// Meter reads the counters below a root folder.
type Meter struct {
	root fs.FS
}

// New returns a Meter of this machine.
func New() *Meter { return &Meter{root: rootFS()} }

// Memory returns the memory in use of the container, if it has a limit of its own, and of the machine otherwise.
func (m *Meter) Memory() (Amount, error) {
	if amount, err := m.ContainerMemory(); err == nil && amount.Total != nil {
		return amount, nil
	}
	return m.HostMemory()
}
