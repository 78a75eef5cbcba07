package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

const childMark = "CODER_AGENT_CHILD"

// Init does the duties of process 1: when this process is the first of its PID namespace, it starts the same program with the
// same arguments as a child, passes signals on to it, buries every orphan, and returns the child's exit status (128 and the
// signal's number when a signal ended it) and true once the child is gone. In every other process it returns false at once.
//
// The child, not process 1, runs the agent: one waiting for any child at all would steal the exit statuses that os/exec waits
// for. Call it first in main.
func Init() (code int, done bool, err error) {
	if os.Getpid() != 1 || os.Getenv(childMark) != "" {
		return 0, false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false, fmt.Errorf("find own program: %w", err)
	}
	code, err = supervise(self, os.Args, append(os.Environ(), childMark+"=1"))
	return code, true, err
}

// supervise runs one program and reaps all children of this process until that one has ended.
func supervise(path string, args, env []string) (int, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)

	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start agent: %w", err)
	}
	done := make(chan struct{})
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s) // it may have ended: the wait below knows
			case <-done:
				return
			}
		}
	}()
	defer func() { close(done); <-passed }()

	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for children: %w", err)
		case pid != cmd.Process.Pid:
			continue
		case status.Exited():
			return status.ExitStatus(), nil
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		}
	}
}
