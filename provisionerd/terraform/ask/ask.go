// Package ask is how a template asks the daemon for its workspace's process. What a job starts ends with the job, so the
// template asks on a socket that only this job has, and only for the workspace that this build is of:
//
//	local-exec ──▶ coder workspace-process start --env NAME -- COMMAND   (our program, $CODER_PROVISIONER_PROGRAM)
//	                   │ $CODER_PROVISIONER_SOCKET: one JSON line each way
//	                   ▼
//	                daemon ──▶ the process, in a sandbox of the workspace (package host)
//
// It is small, because the program that a job sees is (package launcher).
package ask

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The variables of a job that name our program and the socket.
const (
	ProgramVariable = "CODER_PROVISIONER_PROGRAM"
	SocketVariable  = "CODER_PROVISIONER_SOCKET"
)

// MaxRequest bounds a request, in bytes.
const MaxRequest = 1 << 20

// Request is what a job asks for.
type Request struct {
	Start bool              `json:"start"` // otherwise stop
	Args  []string          `json:"args,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	// Limits are less than the provisioner allows, or 0 for what it allows.
	Limits Limits `json:"limits,omitzero"`
}

// Answer is what the daemon says.
type Answer struct {
	Error string `json:"error,omitempty"`
}

// Limits bound the processes of a workspace that is a process of this host, as those of a job do:
// with control groups all of them together, otherwise the memory of each process, and the number of processes if the
// kernel counts them. 0 means no bound.
type Limits struct {
	Memory    uint64 `json:"memory,omitempty"`    // bytes, including its private temporary folders
	Processes uint64 `json:"processes,omitempty"` // at one time, including threads
	Temporary uint64 `json:"temporary,omitempty"` // bytes in each of its private temporary folders
}

// Parse reads a job's request.
func Parse(line []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("read request: %w", err)
	}
	if !r.Start {
		return r, nil
	}
	if len(r.Args) == 0 || r.Args[0] == "" {
		return r, errors.New("the command is missing")
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return r, fmt.Errorf("the environment variable %q cannot be set", name)
		}
	}
	for _, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			return r, errors.New("the command holds a zero byte")
		}
	}
	return r, nil
}

// Command is the program's command "workspace-process", for templates:
//
//	coder workspace-process start [--memory SIZE] [--processes NUMBER] [--tmp SIZE] [--env NAME]... -- COMMAND [ARGUMENT]...
//	coder workspace-process stop
//
// It blocks until the process has been started, or has ended.
func Command(args []string) error {
	r, err := parseArgs(args)
	if err != nil {
		return err
	}
	name := os.Getenv(SocketVariable)
	if name == "" {
		return fmt.Errorf("workspace-process works in a build of a workspace only: %s is not set", SocketVariable)
	}
	conn, err := net.Dial("unix", name)
	if err != nil {
		return fmt.Errorf("ask the provisioner: %w", err)
	}
	defer conn.Close()
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("ask the provisioner: %w", err)
	}
	text, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("wait for the provisioner: %w", err)
	}
	var answer Answer
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

const usage = "usage: workspace-process start [--memory SIZE] [--processes NUMBER] [--tmp SIZE] [--env " +
	"NAME]... -- COMMAND [ARGUMENT]..., or workspace-process stop"

func parseArgs(args []string) (Request, error) {
	if slices.Equal(args, []string{"stop"}) {
		return Request{}, nil
	}
	if len(args) == 0 || args[0] != "start" {
		return Request{}, errors.New(usage)
	}
	r := Request{Start: true, Env: map[string]string{}}
	for args = args[1:]; len(args) > 0 && args[0] != "--"; args = args[2:] {
		if len(args) < 2 {
			return r, errors.New(usage)
		}
		var err error
		switch name, value := args[0], args[1]; name {
		case "--env":
			r.Env[value] = os.Getenv(value)
		case "--memory":
			r.Limits.Memory, err = ParseSize(value)
		case "--tmp":
			r.Limits.Temporary, err = ParseSize(value)
		case "--processes":
			r.Limits.Processes, err = strconv.ParseUint(value, 10, 64)
		default:
			err = errors.New(usage)
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", args[0], err)
		}
	}
	if len(args) < 2 {
		return r, errors.New(usage)
	}
	r.Args = args[1:]
	return r, nil
}

// ParseSize reads a number of bytes such as 4GiB, 512MiB or 1000.
func ParseSize(text string) (uint64, error) {
	factor := uint64(1)
	number := strings.TrimSpace(text)
	for unit, bytes := range map[string]uint64{"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10} {
		if digits, ok := strings.CutSuffix(number, unit); ok {
			number, factor = strings.TrimSpace(digits), bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > 1<<62/factor {
		return 0, fmt.Errorf("%q is not a size in bytes such as 4GiB or 512MiB", text)
	}
	return n * factor, nil
}
