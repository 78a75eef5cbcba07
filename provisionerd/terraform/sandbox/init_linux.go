package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Init is the program's hidden command "sandbox-init": process 1 of a sandbox's namespaces, or, without namespaces,
// what supervises a workspace. It takes the number of an open file with the policy; for a workspace also that of a file
// to which it writes a byte once the program runs; and further arguments for the program that the policy names. It
// changes account, confines itself, starts the program, forwards the signals that end
// it, and reaps orphans. It returns the program's exit status; when it ends the kernel kills what is left in the
// namespaces.
func Init(args []string) (status int, err error) {
	if len(args) == 0 {
		return 0, errors.New("sandbox-init is for the program's own use")
	}
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return 0, fmt.Errorf("read sandbox: %w", err)
	}
	file := os.NewFile(uintptr(number), "sandbox")
	text, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return 0, fmt.Errorf("read sandbox: %w", err)
	}
	p, err := DecodePolicy(text)
	if err != nil {
		return 0, err
	}
	if inside := os.Getpid() == 1; inside != (len(p.Bwrap) > 0) || !inside && !p.Outlive {
		return 0, errors.New("sandbox-init is for the program's own use")
	}
	// Children inherit restrictions from the thread that starts them.
	runtime.LockOSThread()
	asked := make(chan os.Signal, 8)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	if err := errors.Join(p.Limits.Apply(), p.becomeAccount(), Undumpable(), p.enterDir()); err != nil {
		return 0, err
	}
	if p.Confine {
		if err := p.confine(); err != nil {
			return 0, err
		}
	}
	files, env, args := []uintptr{0, 1, 2}, p.Env, args[1:]
	var started *os.File
	if p.Outlive {
		if started, args, err = startFile(args); err != nil {
			return 0, err
		}
		log, err := openBoundedLog(os.Stdout, p.LogBound)
		if err != nil {
			return 0, err
		}
		r, end, err := newRelay(log, "")
		if err != nil {
			return 0, err
		}
		defer r.finish()
		files[1], files[2] = uintptr(end), uintptr(end)
	} else {
		// Use this thread, not process 1: another thread of it may be the main one, and only this one is in Terraform's
		// Landlock domain.
		if env, err = Watching(env, unix.Gettid()); err != nil {
			return 0, err
		}
		go awaitDeath(asked)
		for i, name := range map[int]string{1: LastWordsFile, 2: lastErrorsFile} {
			r, end, err := newRelay(os.NewFile(uintptr(i), name), name)
			if err != nil {
				return 0, err
			}
			defer r.finish()
			files[i] = uintptr(end)
		}
	}
	pid, err := syscall.ForkExec(p.Exec, p.argv(args), &syscall.ProcAttr{
		// otherwise the daemon knows this process's group
		Env: env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: len(p.Bwrap) > 0},
	})
	for _, end := range slices.Compact(files[1:]) {
		if end > 2 {
			err = errors.Join(err, syscall.Close(int(end)))
		}
	}
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", p.Exec, err)
	}
	if started != nil {
		if _, err := started.Write([]byte{1}); err != nil {
			return 0, fmt.Errorf("tell that %s runs: %w", p.Exec, err)
		}
		started.Close()
	}
	go passOn(asked, pid, p)
	for {
		var end unix.WaitStatus
		got, err := unix.Wait4(-1, &end, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", p.Exec, err)
		case got == pid && end.Signaled():
			return 128 + int(end.Signal()), nil
		case got == pid && end.Exited():
			return end.ExitStatus(), nil
		}
	}
}

// startFile takes the first argument: the number of the file that tells when the program runs. The program does not
// inherit it.
func startFile(args []string) (*os.File, []string, error) {
	if len(args) == 0 {
		return nil, nil, errors.New("sandbox-init is for the program's own use")
	}
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, nil, fmt.Errorf("read sandbox: %w", err)
	}
	unix.CloseOnExec(number)
	return os.NewFile(uintptr(number), "started"), args[1:], nil
}

// passOn asks the program to end when this process is asked to. The daemon sends SIGINT; SIGTERM arrives when the
// daemon has ended, and then time is short.
func passOn(asked <-chan os.Signal, pid int, p Policy) {
	var hurry <-chan time.Time
	for {
		select {
		case sign := <-asked:
			switch {
			case p.Outlive:
				// Signal the whole group, as a terminal or a service manager would.
				_ = syscall.Kill(-pid, syscall.SIGTERM)
			default:
				_ = syscall.Kill(pid, syscall.SIGINT)
				if sign == syscall.SIGTERM && hurry == nil {
					hurry = time.After(p.LastWords)
				}
			}
		case <-hurry:
			os.Exit(1)
		}
	}
}
