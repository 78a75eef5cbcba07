//go:build !linux

package terraform

import (
	"errors"
	"syscall"
)

// SandboxExec runs on Linux only.
func SandboxExec([]string) error {
	return errors.New("builds run on Linux only")
}

// Undumpable has nothing to do here.
func Undumpable() error { return nil }

func (l Limits) apply() error { return nil }

func becomeUser(int, int) error { return nil }

func landlockABI() int { return 0 }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

func killGroup(process) {}

func groupAlive(process) bool { return false }
