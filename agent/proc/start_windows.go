package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"unicode/utf16"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Spec describes a program to start.
type Spec struct {
	Path    string
	Args    []string // with the program's name
	Dir     string
	Env     []string
	Files   [3]*os.File // the standard files; a nil one is the null device
	Console *Console    // instead of Files
}

// Process is a program with everything that it starts: a job object holds them together. Programs of one that has ended
// keep running, as on other systems, until Kill.
type Process struct {
	Pid    int
	handle windows.Handle

	mu    sync.Mutex // guards the fields below
	job   windows.Handle
	freed bool
}

// Start starts a program. The caller must call Wait, and Close after it.
func Start(spec Spec) (*Process, error) {
	path, err := windows.UTF16PtrFromString(spec.Path)
	if err != nil {
		return nil, err
	}
	line, err := windows.UTF16PtrFromString(commandLine(spec.Path, spec.Args))
	if err != nil {
		return nil, err
	}
	dir, err := windows.UTF16PtrFromString(spec.Dir)
	if err != nil {
		return nil, err
	}
	env, err := environmentBlock(spec.Env)
	if err != nil {
		return nil, err
	}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create job: %w", err)
	}
	info, err := create(spec, path, line, dir, env)
	if err != nil {
		return nil, errors.Join(err, windows.CloseHandle(job))
	}
	defer windows.CloseHandle(info.Thread)
	p := &Process{Pid: int(info.ProcessId), handle: info.Process, job: job}
	// The program runs only once it is in the job, so that nothing that it starts can be outside.
	err = windows.AssignProcessToJobObject(job, info.Process)
	if err == nil {
		_, err = windows.ResumeThread(info.Thread)
	}
	if err != nil {
		_ = windows.TerminateProcess(info.Process, 1) // it has not run yet
		p.Close()
		return nil, fmt.Errorf("put program into its job: %w", err)
	}
	return p, nil
}

// create creates the suspended process.
func create(spec Spec, path, line, dir, env *uint16) (*windows.ProcessInformation, error) {
	attributes, err := windows.NewProcThreadAttributeList(1)
	if err != nil {
		return nil, err
	}
	defer attributes.Delete()
	start := &windows.StartupInfoEx{ProcThreadAttributeList: attributes.List()}
	start.Cb = uint32(unsafe.Sizeof(*start))
	// With a console no handles are given, so that the program takes those of its console and not this process's.
	start.Flags = windows.STARTF_USESTDHANDLES
	flags := uint32(windows.CREATE_SUSPENDED | windows.CREATE_UNICODE_ENVIRONMENT | windows.EXTENDED_STARTUPINFO_PRESENT)
	if spec.Console != nil {
		console := spec.Console.handle
		err = attributes.Update(windows.PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE,
			*(*unsafe.Pointer)(unsafe.Pointer(&console)), unsafe.Sizeof(console))
	} else {
		flags |= windows.CREATE_NO_WINDOW // a console of its own: Ctrl-C at the agent's does not reach it
		var handles [3]windows.Handle
		handles, err = inheritable(spec.Files)
		defer func() {
			for _, h := range handles {
				_ = windows.CloseHandle(h)
			}
		}()
		if err == nil {
			start.StdInput, start.StdOutput, start.StdErr = handles[0], handles[1], handles[2]
			err = attributes.Update(windows.PROC_THREAD_ATTRIBUTE_HANDLE_LIST, unsafe.Pointer(&handles[0]),
				unsafe.Sizeof(handles))
		}
	}
	if err != nil {
		return nil, err
	}
	info := new(windows.ProcessInformation)
	if err := windows.CreateProcess(path, line, nil, nil, spec.Console == nil, flags, env, dir, &start.StartupInfo,
		info); err != nil {
		return nil, err
	}
	return info, nil
}

// inheritable returns duplicates of files that a child can have. The caller must close those that are not 0, even after
// an error.
func inheritable(files [3]*os.File) (handles [3]windows.Handle, err error) {
	self := windows.CurrentProcess()
	for i, f := range files {
		if f == nil {
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				return handles, err
			}
			defer null.Close()
			f = null
		}
		if err := windows.DuplicateHandle(self, windows.Handle(f.Fd()), self, &handles[i], 0, true,
			windows.DUPLICATE_SAME_ACCESS); err != nil {
			return handles, fmt.Errorf("pass file on: %w", err)
		}
	}
	return handles, nil
}

// commandLine joins arguments as C programs split them. cmd.exe splits nothing: what follows its /c is the command as
// it is.
func commandLine(path string, args []string) string {
	last := len(args) - 1
	raw := last > 0 && strings.EqualFold(args[last-1], "/c") && shellKind(path) == "cmd"
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = syscall.EscapeArg(arg)
		if raw && i == last {
			words[i] = `"` + arg + `"`
		}
	}
	return strings.Join(words, " ")
}

// environmentBlock returns variables in the form of CreateProcess: each ends with a zero, and the whole with another.
func environmentBlock(env []string) (*uint16, error) {
	var block []uint16
	for _, kv := range env {
		if strings.IndexByte(kv, 0) >= 0 {
			return nil, errors.New("a variable of the environment contains a zero byte")
		}
		block = append(append(block, utf16.Encode([]rune(kv))...), 0)
	}
	if len(block) == 0 {
		block = append(block, 0)
	}
	block = append(block, 0)
	return &block[0], nil
}

// Wait blocks until the program itself has ended, and returns its exit status.
func (p *Process) Wait() int {
	if _, err := windows.WaitForSingleObject(p.handle, windows.INFINITE); err != nil {
		return -1
	}
	var code uint32
	if err := windows.GetExitCodeProcess(p.handle, &code); err != nil {
		return -1
	}
	return int(code)
}

// Kill ends the program and everything it has started, all with this exit status. It does nothing after Close.
func (p *Process) Kill(code int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed {
		return nil
	}
	return windows.TerminateJobObject(p.job, uint32(code))
}

// Close forgets the process. Call it after Wait. It is idempotent.
func (p *Process) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.freed {
		p.freed = true
		_ = windows.CloseHandle(p.job) // both are open
		_ = windows.CloseHandle(p.handle)
	}
}
