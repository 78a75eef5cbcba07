//go:build unix

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// readyPoll is how often PostgreSQL's status file is read during startup. Without a connection there is no other
// signal.
const readyPoll = 5 * time.Millisecond

// process is one run of PostgreSQL.
type process struct {
	pid  int
	log  *logLines
	done chan struct{} // closed after err is set
	err  error
}

// startProcess starts PostgreSQL on a data folder, with additional settings. On Linux it ends when this process does,
// however that ends.
func startProcess(in Install, data string, logger *slog.Logger, more ...string) (*process, error) {
	cmd, closeAfter, err := in.Command(data, more...)
	if err != nil {
		return nil, err
	}
	defer closeAfter()
	p := &process{log: &logLines{log: logger}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.WaitDelay = killGrace
	endWithParent(cmd.SysProcAttr)
	if err := startKept(cmd, func(err error) { p.err = err; close(p.done) }); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// startKept starts a child that is bound to this process's life, and calls ended when the child has ended. The kernel
// treats the end of the thread that started a child as the end of its parent, so the goroutine locks its thread. It
// unlocks the thread afterwards: a goroutine that ends with a locked thread terminates it, and with it all other
// children that the thread started before, such as Terraform and its provider workers.
func startKept(cmd *exec.Cmd, ended func(error)) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}

// awaitReady returns nil when the database accepts connections, or the reason why it will not.
func (p *process) awaitReady(ctx context.Context, data string, logger *slog.Logger) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	slow := time.NewTimer(10 * time.Second)
	defer slow.Stop()
	for {
		select {
		case <-p.done:
			reason := p.log.reason()
			if diskFull(reason) {
				return fault.New(fault.Unavailable, "The disk that holds %s is full (%s).", data, disk.Room(data)).
					WithDetail("%s", reason)
			}
			return fault.New(fault.Unavailable, "PostgreSQL does not start: %w", p.err).WithDetail("%s", reason)
		case <-ctx.Done():
			return fmt.Errorf("wait for PostgreSQL: %w", ctx.Err())
		case <-slow.C:
			logger.Warn("PostgreSQL takes long to start", "reason", p.log.reason())
		case <-tick.C:
			if status, err := readStatus(data); err == nil && status.pid == p.pid && status.ready {
				return nil
			}
		}
	}
}

// end stops the process and waits for it: at first in a way that writes everything back, then more forcefully.
func (p *process) end(logger *slog.Logger) {
	p.log.quiet()
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, stopGrace}, {syscall.SIGQUIT, killGrace}, {syscall.SIGKILL, killGrace}} {
		if err := syscall.Kill(p.pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			logger.Warn("signal PostgreSQL", "err", err)
		}
		select {
		case <-p.done:
			return
		case <-time.After(step.wait):
			logger.Warn("PostgreSQL does not stop", "signal", step.signal.String())
		}
	}
	<-p.done
}

// status is the content of postmaster.pid, which PostgreSQL writes.
type status struct {
	pid   int
	ready bool
}

func readStatus(data string) (status, error) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return status{}, err
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return status{}, fmt.Errorf("read postmaster.pid: no process id in %q", lines[0])
	}
	return status{pid, len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready"}, nil
}

// stopOrphan stops a PostgreSQL that an earlier server left running in the data folder, and removes stale lock files.
// The caller holds the lock, so no other server uses the folder.
func stopOrphan(ctx context.Context, data string, logger *slog.Logger) error {
	if st, err := readStatus(data); err == nil && serves(st.pid, data) {
		logger.Info("stopping the PostgreSQL that an earlier server left", "path", data)
		if err := stopEarlier(ctx, st.pid, data); err != nil {
			return err
		}
	}
	return removeStaleLocks(data)
}

func stopEarlier(ctx context.Context, pid int, data string) error {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop PostgreSQL of an earlier server, process %d: %w", pid, err)
		}
		gone, err := awaitGone(ctx, pid, data)
		if gone || err != nil {
			return err
		}
	}
	return fault.New(fault.Unavailable, "An earlier server's PostgreSQL, process %d, still uses %s and does not stop.", pid, data).
		WithDetail("Stop it with: kill -QUIT %d", pid)
}

// removeStaleLocks removes the lock files of a PostgreSQL that ended without removing them. PostgreSQL would not start
// while the process id in one of them is in use: by a zombie, or, after a restart of the machine or container, by
// another process. It still detects children of the killed PostgreSQL by their shared memory. The caller holds the lock
// and runs no PostgreSQL.
func removeStaleLocks(data string) error {
	for _, name := range []string{"postmaster.pid", socketName + ".lock"} {
		if err := os.Remove(filepath.Join(data, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return folderFault(err, data)
		}
	}
	return nil
}

func awaitGone(ctx context.Context, pid int, data string) (bool, error) {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	limit := time.NewTimer(stopGrace)
	defer limit.Stop()
	for serves(pid, data) {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-limit.C:
			return false, nil
		case <-tick.C:
		}
	}
	return true, nil
}

// logLines forwards PostgreSQL's log line by line, and remembers why PostgreSQL may have ended.
type logLines struct {
	log *slog.Logger

	mu   sync.Mutex
	rest []byte   // guarded by mu: an incomplete line
	last []string // guarded by mu: the last lines that report a problem
	calm bool     // guarded by mu: PostgreSQL is being stopped, so complaints are expected
}

// maxLine bounds an unterminated line, in bytes; keep is the number of lines that are remembered.
const (
	maxLine = 8 << 10
	keep    = 5
)

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.rest = append(l.rest, p...)
	var lines []string
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			break
		}
		lines = append(lines, string(line))
		l.rest = rest
	}
	if len(l.rest) > maxLine {
		l.rest = nil
	}
	calm := l.calm
	for _, line := range lines {
		if severity(line) >= slog.LevelWarn {
			l.last = append(l.last, line)
			l.last = l.last[max(0, len(l.last)-keep):]
		}
	}
	l.mu.Unlock()
	for _, line := range lines {
		level := severity(line)
		if calm {
			level = slog.LevelDebug
		}
		l.log.Log(context.Background(), level, "PostgreSQL says", "line", line)
	}
	return len(p), nil
}

// severity returns the level of a line. LOG and its details are only for debugging, and so are clients that connect
// during startup or shutdown.
func severity(line string) slog.Level {
	if strings.HasPrefix(line, "FATAL:  the database system is ") ||
		strings.HasPrefix(line, "FATAL:  terminating connection") {
		return slog.LevelDebug
	}
	switch word, _, _ := strings.Cut(line, ":"); word {
	case "PANIC":
		return slog.LevelError
	case "FATAL", "WARNING", "ERROR":
		return slog.LevelWarn
	case "LOG", "DETAIL", "HINT", "CONTEXT", "STATEMENT", "NOTICE", "INFO":
		return slog.LevelDebug
	default: // not in PostgreSQL's own format: from the dynamic linker or the kernel
		return slog.LevelWarn
	}
}

func (l *logLines) quiet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calm = true
}

func (l *logLines) has(text string) bool { return strings.Contains(l.reason(), text) }

func (l *logLines) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "; ")
}
