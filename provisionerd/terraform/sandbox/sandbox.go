package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// ReattachVariable is Terraform's variable for providers that it attaches to instead of starting them.
const ReattachVariable = "TF_REATTACH_PROVIDERS"

// commandSuffix distinguishes the name of a command from the name of its policy's file.
const commandSuffix = ".run"

// Command returns the command that runs under the policy that was written to the file name.
func Command(name string) string { return name + commandSuffix }

// CommandFile returns the file of the policy that this process was started to run under, given its arguments, if it is
// a command.
func CommandFile(args []string) (name string, ok bool) {
	if len(args) == 0 || !filepath.IsAbs(args[0]) {
		return "", false
	}
	return strings.CutSuffix(args[0], commandSuffix)
}

// Policy is what the sandbox allows one command, and what the command's program starts with. It lies in a file that
// only the daemon can read. The command is a link to our own program beside it, see Exec.
type Policy struct {
	Exec string `json:"exec"` // the program to become
	// Version is the version of the program, a Terraform, if the daemon knows it already. The command then answers
	// "version -json" and starts nothing: terraform-exec asks before its first command, and cannot be told.
	Version string   `json:"version,omitempty"`
	Args    []string `json:"args,omitempty"` // its first arguments, before those of the command
	Env     []string `json:"env,omitempty"`  // its whole environment, as NAME=value
	Dir     string   `json:"dir,omitempty"`  // its working folder; empty for /
	PidFile string   `json:"pid_file"`       // where the process is noted, in a folder that the sandbox cannot see
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
	// LastWords is how long the program may take to end after the daemon has ended. Only with namespaces.
	LastWords time.Duration `json:"last_words,omitempty"`
	// Outlive is set for workspaces: the process survives the one that started it.
	Outlive bool `json:"outlive,omitempty"`
	// LogBound is how many bytes the file that is its standard output may hold; 0 means no bound. Only with Outlive.
	LogBound int64 `json:"log_bound,omitempty"`
}

// Limits bound each process of a job with resource limits of the kernel (setrlimit(2)). 0 means no bound.
type Limits struct {
	Memory uint64 `json:"memory,omitempty"` // bytes of data; beyond it the process ends
	File   uint64 `json:"file,omitempty"`   // bytes of each file that it writes
	// with threads, of the account in its user namespace; one of both must be the job's alone
	Processes uint64 `json:"processes,omitempty"`
	// NoQueues forbids POSIX message queues, which outlive the process: for jobs whose queues nothing here could find
	// (SweepsQueues).
	NoQueues bool `json:"no_queues,omitempty"`
}

// Store writes p to the file name, and makes its Command. self is the absolute path of our own program.
func (p Policy) Store(name, self string) error {
	if !filepath.IsAbs(self) {
		return fmt.Errorf("write sandbox: %q is not an absolute path", self)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(p); err != nil {
		return fmt.Errorf("encode sandbox: %w", err)
	}
	// A running command may still read the old file, and keeps it.
	if err := os.WriteFile(name+".new", text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	// Neither a shell nor the kernel parses a link, so our program's path may hold blanks, and be of any length.
	command := Command(name)
	if to, err := os.Readlink(command); err == nil && to == self {
		return nil
	}
	if err := errors.Join(removeFile(command), os.Symlink(self, command)); err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	return nil
}

// Remove removes what Store wrote. Commands that run already are not affected.
func Remove(name string) error { return errors.Join(removeFile(name), removeFile(Command(name))) }

func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

// DecodePolicy decodes what Store wrote.
func DecodePolicy(text []byte) (Policy, error) {
	var p Policy
	if err := json.Unmarshal(text, &p); err != nil {
		return Policy{}, fmt.Errorf("decode sandbox: %w", err)
	}
	return p, nil
}
