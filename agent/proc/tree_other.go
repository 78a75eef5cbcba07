//go:build unix && !linux

package proc

import "syscall"

// SignalSession sends sig to the process group of leader.
func SignalSession(leader int, sig syscall.Signal) error { return signalGroup(leader, sig) }

// KillSession kills the process group of leader.
func KillSession(leader int) error { return signalGroup(leader, syscall.SIGKILL) }

// PreferAsVictim does nothing where the kernel has no such preference.
func PreferAsVictim(int) error { return nil }
