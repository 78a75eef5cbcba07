//go:build !linux && !windows && !darwin

package usage

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

var errLinux = errors.New("this is measured on Linux, macOS and Windows only")

func rootFS() fs.FS { return os.DirFS("/") }

// HostCPU needs Linux.
func (m *Meter) HostCPU(context.Context) (Amount, error) { return Amount{}, errLinux }

// ContainerCPU needs Linux.
func (m *Meter) ContainerCPU(context.Context) (Amount, error) { return Amount{}, ErrNoContainer }

// HostMemory needs Linux.
func (m *Meter) HostMemory() (Amount, error) { return Amount{}, errLinux }

// ContainerMemory needs Linux.
func (m *Meter) ContainerMemory() (Amount, error) { return Amount{}, ErrNoContainer }

// InContainer needs Linux.
func (m *Meter) InContainer() bool { return false }
