package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

// startEnv is the whole environment of what runs before a command is confined, with the daemon's rights: bubblewrap,
// and process 1.
var startEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// Exec runs a Command, recognized by CommandFile: it takes the name of the policy's file, and the command's arguments,
// which follow the policy's own. It returns after a failure, once a process that outlives it runs, or once it has
// answered for the program (Policy.Version). Call it before anything else in main: a confined process would inherit
// open files.
//
// With bubblewrap's namespaces the processes form a chain:
//
//	Exec           notes its process, joins the job's cgroups, becomes bwrap
//	  └ bwrap      waits, and passes on the exit status
//	      └ sandbox-init   process 1 of the namespaces: Init
//	          └ terraform
//
// Without namespaces, this process confines itself and becomes Terraform, or starts sandbox-init for a workspace.
func Exec(name string, args []string) error {
	if err := leaveCaller(); err != nil {
		return err
	}
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read sandbox: %w", err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read sandbox: %w", err)
	}
	p, err := DecodePolicy(text)
	if err != nil {
		return err
	}
	if p.Version != "" && slices.Equal(args, []string{"version", "-json"}) {
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"terraform_version": p.Version})
	}
	// Landlock, the filter and the account apply to this thread, and exec keeps only this thread.
	runtime.LockOSThread()
	note, err := os.OpenFile(p.PidFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("note process: %w", err)
	}
	if !p.Outlive {
		if err := p.note(note, os.Getpid()); err != nil {
			return err
		}
	}
	for _, procs := range p.Cgroups {
		if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	// A core file would hold the job's secrets.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	if len(p.Bwrap) > 0 {
		return p.enterNamespaces(file, note, args)
	}
	if p.Outlive {
		return p.superviseIn(file, note, args)
	}
	if err := errors.Join(p.Limits.Apply(), p.becomeAccount(), p.enterDir()); err != nil {
		return err
	}
	if p.Confine {
		if err := p.confine(); err != nil {
			return err
		}
	}
	env, err := Watching(p.Env, os.Getpid())
	if err != nil {
		return err
	}
	return p.become(nil, env, func(...string) []string { return p.argv(args) })
}

// leaveCaller gives up what this process inherited apart from its arguments and its standard files. Its environment
// stays, but nothing that it becomes or starts gets it.
func leaveCaller() error {
	unix.Umask(0o022)
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("leave caller: %w", err)
	}
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	open, err := os.ReadDir("/proc/self/fd") // kernels before 5.11
	if err != nil {
		return fmt.Errorf("leave caller: %w", err)
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// argv returns the command line of the policy's program.
func (p Policy) argv(more []string) []string { return slices.Concat([]string{p.Exec}, p.Args, more) }

// enterDir enters the program's working folder. The caller has the policy's account by then, because the folder may be
// the job's.
func (p Policy) enterDir() error {
	if err := os.Chdir(cmp.Or(p.Dir, "/")); err != nil {
		return fmt.Errorf("enter working folder: %w", err)
	}
	return nil
}

// note records a process in the policy's file. Bubblewrap, if used, adds the number of process 1 after it.
func (p Policy) note(file *os.File, pid int) error {
	of, err := Identify(pid)
	if err != nil {
		return err
	}
	of.Namespaces = len(p.Bwrap) > 0
	text, err := json.Marshal(of)
	if err != nil {
		return fmt.Errorf("note process: %w", err)
	}
	if _, err := file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("note process: %w", err)
	}
	return nil
}

// enterNamespaces becomes bubblewrap, which runs sandbox-init with the policy as an open file. A workspace has its
// bubblewrap beside this process.
func (p Policy) enterNamespaces(file, note *os.File, args []string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("hand on sandbox: %w", err)
	}
	argv := func(numbers ...string) []string {
		policyFile, noteFile := numbers[0], numbers[1]
		argv := append(slices.Clone(p.Bwrap), "--info-fd", noteFile, "--", InnerProgram, "sandbox-init", policyFile)
		if p.Outlive {
			argv = append(argv, numbers[2])
		}
		return append(argv, args...)
	}
	if p.Outlive {
		return p.leave(file, note, argv)
	}
	return p.become([]*os.File{file, note}, startEnv, argv)
}

// superviseIn starts sandbox-init without namespaces, for a workspace. It confines itself, and bounds the log.
func (p Policy) superviseIn(file, note *os.File, args []string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("hand on sandbox: %w", err)
	}
	return p.leave(file, note, func(numbers ...string) []string {
		return append([]string{"/proc/self/exe", "sandbox-init", numbers[0], numbers[2]}, args...)
	})
}

// become runs a program with env as its environment in this process's place. argv receives the numbers that the files
// have there.
func (p Policy) become(files []*os.File, env []string, argv func(numbers ...string) []string) error {
	var numbers []string
	for _, file := range files {
		// They keep their numbers: lower ones belong to the Go runtime, which needs them until the end.
		numbers = append(numbers, strconv.Itoa(int(file.Fd())))
		if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("hand on files: %w", err)
		}
	}
	line := argv(numbers...)
	err := syscall.Exec(line[0], line, env)
	runtime.KeepAlive(files) // the garbage collector closes files that are no longer used
	return fmt.Errorf("run %s: %w", line[0], err)
}

// leave runs sandbox-init for a workspace, in a session of its own, and leaves it behind once it has started the
// workspace's program. argv receives the numbers of three files: the policy, one for bubblewrap's note, and one to
// which sandbox-init writes a byte when the program runs.
func (p Policy) leave(file, note *os.File, argv func(numbers ...string) []string) error {
	// Bubblewrap writes its record piece by piece, so it does not share the file with this process, whose record comes
	// first.
	records, record, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("note process: %w", err)
	}
	started, start, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hand on files: %w", err)
	}
	line := argv("3", "4", "5")
	pid, err := syscall.ForkExec(line[0], line, &syscall.ProcAttr{Env: startEnv,
		Files: []uintptr{0, 1, 2, file.Fd(), record.Fd(), start.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("run %s: %w", line[0], err)
	}
	if err := errors.Join(record.Close(), start.Close(), p.note(note, pid)); err != nil {
		return err
	}
	if len(p.Bwrap) > 0 {
		if _, err := io.Copy(note, records); err != nil { // bubblewrap closes it before it runs anything
			return fmt.Errorf("note process: %w", err)
		}
	}
	if n, err := started.Read(make([]byte, 1)); n == 0 {
		return fmt.Errorf("run %s: the sandbox ended before it had started it: %w", p.Exec, err)
	}
	return nil
}

// becomeAccount changes to the policy's account, and makes this process end with the one that started it.
func (p Policy) becomeAccount() error {
	if p.UID != 0 {
		if len(p.Bwrap) == 0 {
			if err := hideProcesses(); err != nil {
				return err
			}
		}
		if err := syscall.Setgroups(p.Groups); err != nil {
			return fmt.Errorf("set groups: %w", err)
		}
		if err := BecomeUser(p.UID, p.GID); err != nil {
			return err
		}
	}
	if p.Outlive || p.UID == 0 && len(p.Bwrap) == 0 {
		return nil
	}
	// Repeated because a change of account resets it. Terraform saves its state and ends on SIGINT.
	sign := unix.SIGINT
	if len(p.Bwrap) > 0 {
		sign = unix.SIGTERM
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(sign), 0, 0, 0); err != nil {
		return fmt.Errorf("bind to the daemon: %w", err)
	}
	return nil
}

// hideProcesses gives this thread, and what it executes and starts, a /proc that shows an account only its own
// processes, if this process may mount. In most containers it may not, and nothing changes.
func hideProcesses() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil //nolint:nilerr // it may not
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("hide processes: %w", err)
	}
	err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=2")
	if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) { // something like AppArmor forbids it
		return fmt.Errorf("hide processes: %w", err)
	}
	return nil
}

// confine turns on Landlock and the system call filter for the calling thread, and for what it executes and starts.
func (p Policy) confine() error {
	if LandlockABI() > 0 {
		if err := confine(p.Write, p.Read); err != nil {
			return err
		}
	}
	return filterCalls(p.Debug)
}

// Apply sets the resource limits of this process and of what it executes.
func (l Limits) Apply() error {
	bounds := map[int]uint64{unix.RLIMIT_DATA: l.Memory, unix.RLIMIT_FSIZE: l.File, unix.RLIMIT_NPROC: l.Processes}
	maps.DeleteFunc(bounds, func(_ int, bound uint64) bool { return bound == 0 })
	if l.NoQueues {
		bounds[unix.RLIMIT_MSGQUEUE] = 0
	}
	for resource, bound := range bounds {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: bound, Max: bound}); err != nil {
			return fmt.Errorf("bound process: %w", err)
		}
	}
	return nil
}

// NamespacesCount reports whether the kernel counts an account's processes separately in each user namespace, as it
// does since 5.14. Older kernels would count all processes of the daemon's account against a job's limit.
func NamespacesCount() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	return AtLeast(unix.ByteSliceToString(name.Release[:]), 5, 14)
}

// AtLeast reports whether a kernel's release is a version or a later one.
func AtLeast(release string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(release, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}

// BecomeUser gives up root for good. A uid of 0 changes nothing. The process is not dumpable afterwards, so other
// processes of the account can read neither its environment nor its memory.
func BecomeUser(uid, gid int) error {
	if uid != 0 {
		if err := syscall.Setgid(gid); err != nil {
			return fmt.Errorf("set group: %w", err)
		}
		if err := syscall.Setuid(uid); err != nil {
			return fmt.Errorf("set account: %w", err)
		}
	}
	return Undumpable()
}

// Undumpable keeps processes of the same account from reading this process's environment and memory. The daemon calls
// it once, early, because jobs may run under its account.
func Undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make process undumpable: %w", err)
	}
	return nil
}

// LandlockABI returns the kernel's Landlock version, or 0.
func LandlockABI() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

const (
	landlockReadDir  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockReadFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	landlockWrite    = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	landlockMake     = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
)

// confine restricts the calling thread, and what it executes and starts, to the given files. It ignores names that do
// not exist.
func confine(write, read []string) error {
	abi := LandlockABI()
	if abi == 0 {
		return errors.New("confine: the kernel has no Landlock")
	}
	writeFile, makeAll := uint64(landlockWrite), uint64(landlockMake)
	if abi >= 2 {
		makeAll |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		writeFile |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	handled := writeFile | makeAll | landlockReadDir | landlockReadFile
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	// The size grows with the ABI; all versions know the first field.
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("confine: create ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, name := range write {
		if err := allowPath(int(fd), name, writeFile|landlockReadFile, makeAll|landlockReadDir); err != nil {
			return err
		}
	}
	for _, name := range read {
		if err := allowPath(int(fd), name, landlockReadFile, landlockReadDir); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: give up privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("confine: restrict: %w", errno)
	}
	return nil
}

// allowPath adds a rule: file rights for a file, file and folder rights for a folder.
func allowPath(ruleset int, name string, file, folder uint64) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("confine: open %s: %w", name, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("confine: look at %s: %w", name, err)
	}
	access := file
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		access |= folder
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("confine: allow %s: %w", name, errno)
	}
	return nil
}

// ChildAttr gives our own children a separate process group, and ends them with this process.
func ChildAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Process identifies a process even after its number has been reused.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
	Boot  string `json:"boot"`
	// Namespaces is set for a bubblewrap, which runs Terraform, or a workspace, below process 1 of its namespaces.
	Namespaces bool `json:"namespaces,omitempty"`
	Init       int  `json:"-"` // the number of that process 1 here; 0 if it is not known yet
}

func Identify(pid int) (Process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, fmt.Errorf("read boot id: %w", err)
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, fmt.Errorf("read process: %w", err)
	}
	// The second field is the command in parentheses and may hold anything.
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return Process{}, errors.New("read process: unexpected format")
	}
	if fields[0][0] == 'Z' {
		return Process{}, errors.New("read process: it has ended")
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("read process: %w", err)
	}
	return Process{PID: pid, Start: start, Boot: string(bytes.TrimSpace(boot))}, nil
}

// KillGroup kills the process group that p leads or led, and does not wait. It spares another process that has p's
// number: while members of the old group live, the kernel does not reuse the number.
func KillGroup(p Process) {
	if p.PID <= 1 {
		return
	}
	now, err := Identify(p.PID)
	if err == nil && (now.Start != p.Start || now.Boot != p.Boot) {
		return
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || string(bytes.TrimSpace(boot)) != p.Boot {
		return
	}
	_ = syscall.Kill(-p.PID, syscall.SIGKILL) // ESRCH: nothing is left
}

// Alive reports whether p itself still runs, rather than another process with its number.
func (p Process) Alive() bool {
	now, err := Identify(p.PID)
	return err == nil && now.Start == p.Start && now.Boot == p.Boot
}

// Signal asks the program that p runs to end: Terraform, or a workspace's process. It reports whether that program
// handles the signal.
func (p Process) Signal(sign syscall.Signal) bool {
	switch {
	case !p.Alive() || p.Namespaces && (p.Init == 0 || !listens(p.Init, sign)):
		return false
	case p.Namespaces:
		return syscall.Kill(p.Init, sign) == nil
	}
	return syscall.Kill(p.PID, sign) == nil
}

// listens reports whether a process handles a signal. The kernel drops signals that a process 1 does not handle.
func listens(pid int, sign syscall.Signal) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, caught, _ := strings.Cut(string(status), "\nSigCgt:")
	caught, _, _ = strings.Cut(caught, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(caught), 16, 64)
	return err == nil && set&(1<<(sign-1)) != 0
}

// GroupAlive reports whether the process group that p led still has members.
func GroupAlive(p Process) bool {
	return p.PID > 1 && syscall.Kill(-p.PID, 0) == nil
}

// PeerAccount returns the account of the process at the other end of a unix socket.
func PeerAccount(conn *net.UnixConn) (int, error) {
	var peer *unix.Ucred
	if err := netio.Control(conn, func(fd int) (err error) {
		peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	}); err != nil {
		return 0, fmt.Errorf("identify caller: %w", err)
	}
	return int(peer.Uid), nil
}

// KillAccount kills every process of an account that belongs to one job or workspace. It starts a process of that
// account, which does so in one system call, so that no forking process can escape.
func KillAccount(self string, uid int) error {
	cmd := exec.Command(self, "sandbox-kill")
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
		Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("end processes of account %d: %w", uid, err)
	}
	return nil
}

// Kill is the program's hidden command "sandbox-kill": it ends all other processes of its account.
func Kill() error {
	if os.Getuid() < LowestAccount || os.Getuid() != os.Geteuid() {
		return errors.New("sandbox-kill is for the program's own use")
	}
	// Killed processes take a moment to end.
	for deadline := time.Now().Add(killTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err := syscall.Kill(-1, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end processes: %w", err)
		}
		if left, err := Running(); err != nil || left[os.Getuid()] == 0 {
			return err
		}
	}
	return errors.New("end processes: some do not end")
}

// killTime is how long killed processes may take to end.
const killTime = 10 * time.Second
