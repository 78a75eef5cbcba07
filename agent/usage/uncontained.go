//go:build windows || darwin

package usage

import "context"

// ContainerCPU fails: what runs in a container of this system sees the container's limits as the machine's.
func (m *Meter) ContainerCPU(context.Context) (Amount, error) { return Amount{}, ErrNoContainer }

// ContainerMemory fails, as ContainerCPU does.
func (m *Meter) ContainerMemory() (Amount, error) { return Amount{}, ErrNoContainer }

// InContainer returns false.
func (m *Meter) InContainer() bool { return false }
