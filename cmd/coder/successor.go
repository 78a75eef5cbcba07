package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// A provisioner daemon that is killed can no longer deliver results. It leaves a successor: a process of the same
// command that was started ahead and waits on a pipe for the daemon's death. The successor then takes over the daemon's
// folder, reports to the server how the killed jobs ended and which state they reached, and exits. A daemon that starts
// in the meantime dismisses it and does the same.
//
//	daemon ──starts──▶ successor, waiting      pipe ends without a word: the daemon was killed
//	   │                 │
//	   │ "bye" ─────────▶│ ends            orderly end: what is undelivered waits for the next start
const (
	successorVariable = "CODER_PROVISIONER_HEIR" // "wait:<file descriptor>", then successorActs
	successorActs     = "act"
	// succession is how long the successor gives a supervisor to restart the daemon.
	succession     = 2 * time.Second
	successorGrace = 15 * time.Minute // how long the successor tries: longer than the server waits for a daemon by default
)

// awaitSuccession is the waiting successor's part of main. It returns at once in any other process, and in the
// successor once the daemon was killed. It does not return if the daemon ended in order.
func awaitSuccession() error {
	var number int
	if n, _ := fmt.Sscanf(os.Getenv(successorVariable), "wait:%d", &number); n != 1 {
		return nil // this is not the successor
	}
	// The successor's environment holds the daemon's credential.
	if err := sandbox.Undumpable(); err != nil {
		return err
	}
	// A signal to all processes of a service ends the daemon, which then dismisses this process. Nothing reads the
	// channel.
	deaf := make(chan os.Signal, 1)
	signal.Notify(deaf, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	pipe := os.NewFile(uintptr(number), "pipe of the daemon")
	words, err := io.ReadAll(pipe)
	if err != nil || len(words) > 0 {
		os.Exit(0)
	}
	if err := pipe.Close(); err != nil {
		return fmt.Errorf("close pipe: %w", err)
	}
	signal.Stop(deaf)
	time.Sleep(succession)
	return os.Setenv(successorVariable, successorActs)
}

// isSuccessor reports whether this process acts for a killed daemon.
func isSuccessor() bool { return os.Getenv(successorVariable) == successorActs }

// successor is the waiting process of a daemon.
type successor struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// startSuccessor starts the successor of this process.
func startSuccessor() (*successor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer theirs.Close()
	const first = 3 // of ExtraFiles
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), successorVariable+"=wait:"+strconv.Itoa(first))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = ownSession()
	// A reader of a pipe waits for its last writer, so the successor must not hold the writing end.
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeNamedPipe == 0 {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start successor: %w", err)
	}
	return &successor{cmd, ours}, nil
}

// dismiss ends the successor, because this process ends in order.
func (s *successor) dismiss() error {
	_, killed := s.pipe.WriteString("bye")
	s.pipe.Close() // the successor reacts to the end of the pipe
	if killed == nil {
		if err := s.cmd.Wait(); err != nil {
			return fmt.Errorf("successor: %w", err)
		}
	}
	return nil
}
