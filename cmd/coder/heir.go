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

	"github.com/codermesh/codermesh/provisionerd/terraform/sandbox"
)

// A provisioner daemon that is killed can no longer deliver results. It leaves an heir: a process of the same command that was started
// ahead and waits on a pipe for the daemon's death. The heir then takes over the daemon's folder, reports to the server how the killed jobs
// ended and which state they reached, and exits. A daemon that starts in the meantime dismisses the heir and does the same.
//
//	daemon ──starts──▶ heir, waiting      pipe ends without a word: the daemon was killed
//	   │                 │
//	   │ "bye" ─────────▶│ ends            orderly end: what is undelivered waits for the next start
const (
	heirVariable = "CODER_PROVISIONER_HEIR" // "wait:<file descriptor>", then "act"
	heirActs     = "act"
	// succession is how long the heir gives a supervisor to restart the daemon.
	succession = 2 * time.Second
	heirGrace  = 15 * time.Minute // how long the heir tries: longer than the server waits for a daemon by default
)

// awaitInheritance is the waiting heir's part of main. It returns at once in any other process, and in the heir once the daemon was killed.
// It does not return if the daemon ended in order.
func awaitInheritance() error {
	var number int
	if n, _ := fmt.Sscanf(os.Getenv(heirVariable), "wait:%d", &number); n != 1 {
		return nil // this is not the heir
	}
	// The heir's environment holds the daemon's credential.
	if err := sandbox.Undumpable(); err != nil {
		return err
	}
	// A signal to all processes of a service ends the daemon, which then dismisses this process. Nothing reads the channel.
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
	return os.Setenv(heirVariable, heirActs)
}

// isHeir reports whether this process acts for a killed daemon.
func isHeir() bool { return os.Getenv(heirVariable) == heirActs }

// heir is the waiting process of a daemon.
type heir struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// leaveHeir starts the heir of this process.
func leaveHeir() (*heir, error) {
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
	cmd.Env = append(os.Environ(), heirVariable+"=wait:"+strconv.Itoa(first))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = ownSession()
	// A reader of a pipe waits for its last writer, so the heir must not hold the writing end.
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeNamedPipe == 0 {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start heir: %w", err)
	}
	return &heir{cmd, ours}, nil
}

// dismiss ends the heir, because this process ends in order.
func (h *heir) dismiss() error {
	_, killed := h.pipe.WriteString("bye")
	h.pipe.Close() // the heir reacts to the end of the pipe
	if killed == nil {
		if err := h.cmd.Wait(); err != nil {
			return fmt.Errorf("heir: %w", err)
		}
	}
	return nil
}
