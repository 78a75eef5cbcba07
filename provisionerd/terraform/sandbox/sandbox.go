package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// These files of the job's working folder hold what Terraform prints after the daemon's death.
const (
	LastWordsFile  = "terraform.lastwords"
	lastErrorsFile = "terraform.lasterrors"
)

// InnerProgram is where a sandbox with namespaces sees our own program.
const InnerProgram = "/run/codermesh/coder"

// LowestAccount is the first account that a job may run as. KillAccount never kills processes of accounts below it.
const LowestAccount = 30_000

// Policy is what the sandbox allows one command. It lies in a file of the daemon that is also the command: its first line makes the kernel
// run `<our program> sandbox-exec <file> <arguments>`, see Exec.
type Policy struct {
	Exec    string `json:"exec"`     // the program to become
	PidFile string `json:"pid_file"` // where the process is noted, in a folder that the sandbox cannot see
	// Bwrap is bubblewrap's program and arguments; empty for no namespaces.
	Bwrap []string `json:"bwrap,omitempty"`
	// Cgroups are the kernel's control groups to join: names of cgroup.procs files.
	Cgroups []string `json:"cgroups,omitempty"`
	UID     int      `json:"uid,omitempty"` // 0 keeps the caller's
	GID     int      `json:"gid,omitempty"`
	Groups  []int    `json:"groups,omitempty"`
	// Confine turns on the system call filter, and Landlock if the kernel supports it.
	Confine bool     `json:"confine,omitempty"`
	Debug   bool     `json:"debug,omitempty"` // leave the system calls of debuggers
	Write   []string `json:"write,omitempty"` // files and folders to read, write and execute in, for Landlock
	Read    []string `json:"read,omitempty"`  // files and folders to read and execute in, for Landlock
	Limits  Limits   `json:"limits,omitzero"`
	// Dir is the working folder; empty for the caller's. Only with namespaces.
	Dir string `json:"dir,omitempty"`
	// LastWords is how long the program may take to end after the daemon has ended. Only with namespaces.
	LastWords time.Duration `json:"last_words,omitempty"`
	// Outlive is set for workspaces: the process survives the one that started it.
	Outlive bool `json:"outlive,omitempty"`
}

// Limits bound each process of a job with resource limits of the kernel (setrlimit(2)). 0 means no bound.
type Limits struct {
	Memory    uint64 `json:"memory,omitempty"`    // bytes of data; beyond it the process ends
	File      uint64 `json:"file,omitempty"`      // bytes of each file that it writes
	Processes uint64 `json:"processes,omitempty"` // with threads, of the account in its user namespace; one of both must be the job's alone
}

// WriteCommand writes p as an executable file. self is our own program.
func (p Policy) WriteCommand(name, self string) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode sandbox: %w", err)
	}
	// The kernel accepts one word of argument, no blanks in the path, and 255 bytes in all.
	first := "#!" + self + " sandbox-exec\n"
	if strings.ContainsAny(self, " \t\n") || len(first) > 250 {
		quoted := "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
		first = "#!/bin/sh\nexec " + quoted + ` sandbox-exec "$0" "$@"` + "\nexit 126\n"
	}
	// A running command may still be read: it keeps the old file.
	if err := writeProgram(name+".new", append([]byte(first), body...)); err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	return nil
}

// writeProgram writes an executable file that can be run at once. A child that another goroutine starts meanwhile would hold the file open
// for writing until it execs its own program, and the kernel does not run a file that is open for writing (ETXTBSY).
func writeProgram(name string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, text, 0o700)
}

// DecodePolicy decodes what WriteCommand wrote.
func DecodePolicy(text []byte) (Policy, error) {
	_, body, ok := strings.Cut(string(text), "\n{")
	if !ok {
		return Policy{}, errors.New("read sandbox: it holds no policy")
	}
	var p Policy
	if err := json.Unmarshal([]byte("{"+body), &p); err != nil {
		return Policy{}, fmt.Errorf("decode sandbox: %w", err)
	}
	return p, nil
}
