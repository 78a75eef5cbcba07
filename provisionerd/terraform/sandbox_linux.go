package terraform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SandboxExec is the program's hidden command "sandbox-exec": it takes the name of a policy file and the arguments for the
// program that the policy names, confines this process, and becomes that program. It returns only on failure. Call it before
// anything else in main: a confined process that holds open files would hand them on.
func SandboxExec(args []string) error {
	if len(args) == 0 {
		return errors.New("sandbox-exec is for the program's own use")
	}
	p, err := readPolicy(args[0])
	if err != nil {
		return err
	}
	// Landlock and the account are bound to this thread, and the thread is what exec keeps.
	runtime.LockOSThread()
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	note, err := json.Marshal(self)
	if err != nil {
		return fmt.Errorf("note process: %w", err)
	}
	if err := os.WriteFile(p.PidFile, note, 0o600); err != nil {
		return fmt.Errorf("note process: %w", err)
	}
	// A core file would hold the job's secrets.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	if len(p.Show) > 0 {
		if err := makeReachable(p.Show); err != nil {
			return err
		}
	}
	if err := p.Limits.apply(); err != nil {
		return err
	}
	if p.Landlock {
		if err := confine(p.Write, p.Read); err != nil {
			return err
		}
	}
	if p.UID != 0 {
		if err := syscall.Setgroups(p.Groups); err != nil {
			return fmt.Errorf("set groups: %w", err)
		}
		if err := becomeUser(p.UID, p.GID); err != nil {
			return err
		}
		// The change of account made the kernel forget that this process ends with the daemon.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("bind to the daemon: %w", err)
		}
	}
	err = syscall.Exec(p.Exec, append([]string{p.Exec}, args[1:]...), os.Environ())
	return fmt.Errorf("run %s: %w", p.Exec, err)
}

// apply bounds this process and what it becomes.
func (l Limits) apply() error {
	for resource, bound := range map[int]uint64{unix.RLIMIT_DATA: l.Memory, unix.RLIMIT_FSIZE: l.File} {
		if bound == 0 {
			continue
		}
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: bound, Max: bound}); err != nil {
			return fmt.Errorf("bound process: %w", err)
		}
	}
	return nil
}

// becomeUser gives up root for good. A uid of 0 changes nothing. The process is not dumpable afterwards: others of the same
// account can read neither its environment nor its memory.
func becomeUser(uid, gid int) error {
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

// Undumpable forbids processes of the same account to read this process's environment and memory. The daemon calls it once,
// early: job processes may run under its account.
func Undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make process undumpable: %w", err)
	}
	return nil
}

// landlockABI is the kernel's Landlock version, 0 when there is none.
func landlockABI() int {
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

// confine restricts the calling thread, and what it becomes and starts, to the given files. Names that do not exist are left
// out.
func confine(write, read []string) error {
	abi := landlockABI()
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
	// The size grows with the ABI; the first field alone is known to all.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
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

// childAttr is for our own children: a process group of their own, and no life without us.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// process identifies a process beyond the reuse of its number.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
	Boot  string `json:"boot"`
}

func identify(pid int) (process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, fmt.Errorf("read boot id: %w", err)
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, fmt.Errorf("read process: %w", err)
	}
	// The second field is the command in parentheses and may hold anything.
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return process{}, errors.New("read process: unexpected format")
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("read process: %w", err)
	}
	return process{PID: pid, Start: start, Boot: string(bytes.TrimSpace(boot))}, nil
}

// killGroup ends the process group that p leads or led, and waits for none of it. A number that another process has got since
// is left alone: while members of the old group live, the kernel does not give it out again.
func killGroup(p process) {
	if p.PID <= 1 {
		return
	}
	now, err := identify(p.PID)
	if err == nil && (now.Start != p.Start || now.Boot != p.Boot) {
		return
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || string(bytes.TrimSpace(boot)) != p.Boot {
		return
	}
	_ = syscall.Kill(-p.PID, syscall.SIGKILL) // ESRCH: nothing is left
}

// groupAlive reports whether the process group that p led still has members.
func groupAlive(p process) bool {
	return p.PID > 1 && syscall.Kill(-p.PID, 0) == nil
}
