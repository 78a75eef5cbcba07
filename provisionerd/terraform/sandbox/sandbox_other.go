//go:build !linux

package sandbox

import (
	"errors"
	"net"
	"syscall"
)

// Exec runs on Linux only.
func Exec(string, []string) error {
	return errors.New("builds run on Linux only")
}

// Init runs on Linux only.
func Init([]string) (int, error) { return 0, Exec("", nil) }

// Kill runs on Linux only.
func Kill() error { return Exec("", nil) }

func PeerAccount(*net.UnixConn) (int, error) { return 0, Exec("", nil) }

func KillAccount(string, int) error { return nil }

func CallFilter(bool) []struct{} { return nil }

// Undumpable has nothing to do here.
func Undumpable() error { return nil }

func (l Limits) Apply() error { return nil }

func BecomeUser(int, int) error { return nil }

func LandlockABI() int { return 0 }

func NamespacesCount() bool { return false }

func ChildAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

type Process struct {
	PID        int    `json:"pid"`
	Start      uint64 `json:"start"`
	Boot       string `json:"boot"`
	Namespaces bool   `json:"namespaces,omitempty"`
	Init       int    `json:"-"`
}

func Identify(int) (Process, error) { return Process{}, Exec("", nil) }

func (p Process) Alive() bool { return false }

func (p Process) Signal(syscall.Signal) bool { return false }

func KillGroup(Process) {}

type Leavings struct {
	Dirs []string
	Of   func(uid int) bool
	Jobs func(uid int) bool
}

func (Leavings) Usage() (bytes, files uint64) { return 0, 0 }

func (Leavings) Sweep() error { return nil }

func SweepsQueues() bool { return true }

func Running() (map[int]int, error) { return nil, nil }

func GroupAlive(Process) bool { return false }
