package keeper

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/memory"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const socketFD = 3

// Run starts an agent, this program with the same arguments, restarts it after crashes and after the workspace stopped,
// and returns its exit status once it has exited by choice. The process must not have other children.
func Run(opts Options) (code int, err error) {
	path, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	if err := proc.Protect(); err != nil {
		opts.Logger.Warn("cannot protect the agent", "err", err)
	}
	// The keeper does little, so it need not keep memory for later.
	debug.SetGCPercent(20)
	proc.DefaultSignals()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1)
	defer signal.Stop(signals)
	children, err := proc.NewChildren()
	if err != nil {
		return 0, err
	}
	defer children.Close()
	k := &keeper{opts: opts, log: opts.Logger, path: path, children: children, signals: signals}
	k.holder = k.newHolder()
	code, err = k.run()
	return code, errors.Join(err, k.holder.Close())
}

type keeper struct {
	opts     Options
	log      *slog.Logger
	path     string
	children *proc.Children
	holder   *terminal.Holder
	signals  chan os.Signal

	returning bool // the workspace has stopped
}

func (k *keeper) newHolder() *terminal.Holder {
	return terminal.New(terminal.Options{Logger: k.log, Launch: k.children.Start})
}

func (k *keeper) run() (int, error) {
	pauses := backoff.Backoff{Min: minPause, Max: maxPause}
	for {
		began := time.Now()
		status, ending, err := k.once()
		if err != nil {
			return 0, err
		}
		switch {
		case status.Exited() && status.ExitStatus() == RestartCode && !ending:
			k.log.Info("restarting agent")
			continue
		case status.Exited() && status.ExitStatus() == StoppedCode && !ending:
			k.log.Info("workspace stopped, its next start may admit the agent again")
			k.returning = true
			if err := k.holder.Close(); err != nil {
				k.log.Warn("cannot end terminals", "err", err)
			}
			k.holder = k.newHolder()
		case ending && (k.returning || status.Exited() && status.ExitStatus() == StoppedCode):
			return 0, nil
		case status.Exited() && status.ExitStatus() != panicCode:
			return status.ExitStatus(), nil
		case ending:
			return 128 + int(status.Signal()), nil
		default:
			k.log.Error("agent crashed, restarting", "reason", describe(status))
		}
		if time.Since(began) > wellFor {
			pauses.Reset()
		}
		if code, ended := k.pause(pauses.Next()); ended {
			return code, nil
		}
	}
}

// pause waits before the next agent. ended is set if a signal ends the workspace meanwhile.
func (k *keeper) pause(d time.Duration) (code int, ended bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return 0, false
		case s := <-k.signals:
			switch {
			case ends(s) && k.returning:
				return 0, true
			case ends(s):
				return 128 + int(s.(syscall.Signal)), true
			}
		}
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return "exit status " + strconv.Itoa(status.ExitStatus())
}

// ends reports whether a signal asks the workspace to stop. A hangup does not.
func ends(s os.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT
}

// once runs the agent until it exits. ending is set if a signal asked it to.
func (k *keeper) once() (status syscall.WaitStatus, ending bool, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, false, fmt.Errorf("open socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "agent"), os.NewFile(uintptr(pair[1]), "keeper")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return 0, false, fmt.Errorf("open socket pair: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(k.opts.Token.Reveal())); err != nil {
		return 0, false, fmt.Errorf("pass token on: %w", err)
	}
	env := proc.NewEnv(os.Environ())
	env.Set("CODER_AGENT_TOKEN", "")
	env.Set(childEnv, "1")
	if k.returning {
		env.Set(returningEnv, "1")
	}
	attr := &os.ProcAttr{
		Env:   append(env.List(), proc.ProtectedEnv()),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, theirs},
	}
	pid, exited, err := k.children.Start(k.path, os.Args, attr)
	if err != nil {
		return 0, false, fmt.Errorf("start agent: %w", err)
	}
	if pid <= 1 {
		// kill(2) takes such numbers for groups of processes
		return 0, false, fmt.Errorf("start agent: it is process %d", pid)
	}
	theirs.Close()
	memory.Free()
	socket := conn.(*net.UnixConn)
	var viewers sync.WaitGroup
	viewers.Go(func() { k.accept(socket) })
	defer viewers.Wait()
	defer func() { _ = socket.CloseRead() }() // what the agent sent before it ended can still be read
	for {
		select {
		case status := <-exited:
			return status, ending, nil
		case s := <-k.signals:
			ending = ending || ends(s)
			_ = syscall.Kill(pid, s.(syscall.Signal)) // it may have ended just now
		}
	}
}

// accept passes the agent's connections to the holder of terminals until the agent has ended. A message without a
// connection is the token of the next agent.
func (k *keeper) accept(conn *net.UnixConn) {
	buf, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	for {
		n, rn, _, _, err := conn.ReadMsgUnix(buf, rights)
		if err != nil || n == 0 {
			return
		}
		if rn == 0 {
			k.opts.Token = secret.Token(buf[:n])
			continue
		}
		viewer, err := received(rights[:rn])
		if err != nil {
			k.log.Warn("cannot accept connection to a terminal", "err", err)
			continue
		}
		k.holder.Go(viewer)
	}
}

// received returns the connection whose descriptor a message carries.
func received(rights []byte) (net.Conn, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("the message has no descriptor")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(err, errors.New("the message has no descriptor"))
	}
	unix.CloseOnExec(fds[0])
	file := os.NewFile(uintptr(fds[0]), "viewer")
	defer file.Close()
	return net.FileConn(file)
}
