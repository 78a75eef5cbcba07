//go:build !linux

package terraform

import (
	"errors"
	"net"
	"syscall"
)

// SandboxExec runs on Linux only.
func SandboxExec([]string) error {
	return errors.New("builds run on Linux only")
}

// SandboxInit runs on Linux only.
func SandboxInit([]string) (int, error) { return 0, SandboxExec(nil) }

// SandboxKill runs on Linux only.
func SandboxKill() error { return SandboxExec(nil) }

func peerAccount(*net.UnixConn) (int, error) { return 0, SandboxExec(nil) }

func killAccount(string, int) error { return nil }

func callFilter(bool) []struct{} { return nil }

// Undumpable has nothing to do here.
func Undumpable() error { return nil }

func (l Limits) apply() error { return nil }

func becomeUser(int, int) error { return nil }

func landlockABI() int { return 0 }

func namespacesCount() bool { return false }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

type process struct {
	PID        int    `json:"pid"`
	Start      uint64 `json:"start"`
	Boot       string `json:"boot"`
	Namespaces bool   `json:"namespaces,omitempty"`
	Init       int    `json:"-"`
}

func identify(int) (process, error) { return process{}, SandboxExec(nil) }

func (p process) alive() bool { return false }

func (p process) signal(syscall.Signal) bool { return false }

func killGroup(process) {}

func groupAlive(process) bool { return false }
