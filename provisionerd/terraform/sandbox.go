package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// policy is what the sandbox allows one command. It lies in a file that is also the command: its first line makes the kernel
// run `<our program> sandbox-exec <file> <arguments>`, which confines itself and then becomes Terraform, so that the process
// id, signals and pipes are Terraform's own.
type policy struct {
	Exec     string   `json:"exec"`     // Terraform
	PidFile  string   `json:"pid_file"` // where to note the process, in a folder that is not the sandbox's
	Landlock bool     `json:"landlock"`
	Write    []string `json:"write,omitempty"` // files and folders to read, write and execute in
	Read     []string `json:"read,omitempty"`  // files and folders to read and execute in
	UID      int      `json:"uid,omitempty"`   // 0 keeps the caller's
	GID      int      `json:"gid,omitempty"`
	Groups   []int    `json:"groups,omitempty"`
	Show     []string `json:"show,omitempty"` // files and folders that the account could not reach otherwise
	Limits   Limits   `json:"limits,omitzero"`
}

// Limits bound each process of a job, by resource limits of the kernel (setrlimit(2)). 0 means no bound.
type Limits struct {
	Memory uint64 `json:"memory,omitempty"` // bytes of data; beyond it the process ends
	File   uint64 `json:"file,omitempty"`   // bytes of each file that it writes
}

// writeCommand writes p as an executable file. self is our own program.
func (p policy) writeCommand(name, self string) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode sandbox: %w", err)
	}
	// The kernel takes one word of argument, no blanks in the path, and 255 bytes in all.
	first := "#!" + self + " sandbox-exec\n"
	if strings.ContainsAny(self, " \t\n") || len(first) > 250 {
		quoted := "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
		first = "#!/bin/sh\nexec " + quoted + ` sandbox-exec "$0" "$@"` + "\nexit 126\n"
	}
	if err := os.WriteFile(name, append([]byte(first), body...), 0o700); err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	return nil
}

// readPolicy reads what writeCommand wrote.
func readPolicy(name string) (policy, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return policy{}, fmt.Errorf("read sandbox: %w", err)
	}
	_, body, ok := strings.Cut(string(text), "\n{")
	if !ok {
		return policy{}, errors.New("read sandbox: no policy in it")
	}
	var p policy
	if err := json.Unmarshal([]byte("{"+body), &p); err != nil {
		return policy{}, fmt.Errorf("decode sandbox: %w", err)
	}
	return p, nil
}
