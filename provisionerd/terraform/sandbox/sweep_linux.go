package sandbox

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Leavings find what accounts own in folders that every account may write to, in System V IPC and in POSIX message
// queues. Without namespaces jobs share all of these with the host.
//
// It runs with root's rights in folders in which other accounts change names all the time. So it follows no link and
// leaves no file system, it works on open folders rather than on paths, and it removes a name only after looking at its
// owner there. To put something else in its place in between, an account must be able to move that away, and could have
// removed it.
type Leavings struct {
	Dirs []string           // folders to search, with their subfolders
	Of   func(uid int) bool // the accounts
	// Jobs are accounts into whose folders an account of Of may have been let, whatever their mode is now.
	Jobs func(uid int) bool
}

// maxDepth is how deep below its folders Leavings descends, because each level takes an open file. Sweep raises what
// lies deeper.
const maxDepth = 64

// errLeft reports that something could not be removed.
var errLeft = errors.New("something is left")

// Usage returns how many bytes and files the accounts hold. Folders nested deeper than any job needs count as very many
// files.
func (l Leavings) Usage() (bytes, files uint64) {
	for _, dir := range l.Dirs {
		w := leavingsWalk{Leavings: l}
		_ = w.top(dir) // without the folder there is nothing in it
		bytes, files = bytes+w.bytes, files+w.files
	}
	for _, row := range ipcObjects("shm") {
		if row.of(l.Of) {
			bytes, files = bytes+row.number("rss")+row.number("swap"), files+1
		}
	}
	return bytes, files
}

// Sweep removes what the accounts own. None of their processes may run. An error means that something of theirs is
// left, such as a folder with another account's file in it.
func (l Leavings) Sweep() error {
	var errs []error
	for _, dir := range l.Dirs {
		for raised := true; raised; {
			w := leavingsWalk{Leavings: l, remove: true}
			err := w.top(dir)
			if raised = w.raised > 0; !raised && err != nil {
				errs = append(errs, fmt.Errorf("sweep %s: %w", dir, err))
			}
		}
	}
	for kind, call := range map[string]uintptr{"shm": unix.SYS_SHMCTL, "sem": unix.SYS_SEMCTL, "msg": unix.SYS_MSGCTL} {
		for _, row := range ipcObjects(kind) {
			if !row.of(l.Of) {
				continue
			}
			if err := row.remove(kind, call, l.Of); err != nil {
				errs = append(errs, fmt.Errorf("sweep System V IPC: %w", err))
			}
		}
	}
	if queues, err := openQueues(); err == nil { // otherwise there are none: Limits.NoQueues
		w := leavingsWalk{Leavings: l, remove: true}
		if err := w.begin(queues, "the message queues"); err != nil {
			errs = append(errs, fmt.Errorf("sweep message queues: %w", err))
		}
	}
	return errors.Join(errs...)
}

// leavingsWalk is one walk through one folder.
type leavingsWalk struct {
	Leavings
	remove       bool
	root         int
	dev          uint64
	bytes, files uint64
	left, raised int
}

func (w *leavingsWalk) top(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	return w.begin(fd, dir)
}

// begin walks through an open folder, and closes it.
func (w *leavingsWalk) begin(fd int, name string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	w.root, w.dev = fd, stat.Dev
	w.folder(os.NewFile(uintptr(fd), name), 0)
	if w.left > 0 {
		return errLeft
	}
	return nil
}

// folder walks through an open folder, and closes it. It skips what it cannot read: it went away.
func (w *leavingsWalk) folder(dir *os.File, depth int) {
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		w.entry(int(dir.Fd()), name, depth)
	}
}

func (w *leavingsWalk) entry(dir int, name string, depth int) {
	var stat unix.Stat_t
	if unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil || stat.Dev != w.dev {
		return
	}
	theirs := w.Of(int(stat.Uid))
	if theirs {
		w.files++
		w.bytes += uint64(stat.Blocks) * 512
	}
	isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir && (theirs || w.Jobs(int(stat.Uid)) || stat.Mode&0o001 != 0) {
		if depth >= maxDepth {
			w.deep(dir, name, theirs)
			return
		}
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			w.folder(os.NewFile(uintptr(fd), name), depth+1)
		}
	}
	if !theirs || !w.remove {
		return
	}
	flags := 0
	if isDir {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(dir, name, flags); err != nil && !errors.Is(err, unix.ENOENT) {
		w.left++
	}
}

// deep handles a folder that lies too deep to descend into.
func (w *leavingsWalk) deep(dir int, name string, theirs bool) {
	const tooMany = 1 << 32
	switch {
	case !theirs:
		// Its owner is swept, too, and raises it then, or is no job.
	case !w.remove:
		w.files += tooMany
	case unix.Renameat(dir, name, w.root, ".codermesh-swept-"+rand.Text()) == nil:
		w.raised++
	default:
		w.left++
	}
}

// ipcObject is one line of a file in /proc/sysvipc, by the names of its columns.
type ipcObject map[string]string

func ipcObjects(kind string) []ipcObject {
	file, err := os.Open("/proc/sysvipc/" + kind)
	if err != nil {
		return nil // the kernel has none
	}
	defer file.Close()
	var all []ipcObject
	var columns []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if columns == nil {
			columns = fields
			continue
		}
		row := ipcObject{}
		for n, field := range fields[:min(len(fields), len(columns))] {
			row[columns[n]] = field
		}
		all = append(all, row)
	}
	return all
}

func (o ipcObject) number(column string) uint64 {
	n, _ := strconv.ParseUint(o[column], 10, 64) // older kernels lack some columns
	return n
}

// of reports whether one of the accounts made or owns the object.
func (o ipcObject) of(is func(int) bool) bool {
	return slices.ContainsFunc([]string{"uid", "cuid"},
		func(column string) bool { return o[column] != "" && is(int(o.number(column))) })
}

// remove removes the object. Root may do that only with CAP_SYS_ADMIN, which containers lack; who made or owns it may
// do so always.
func (o ipcObject) remove(kind string, call uintptr, is func(int) bool) error {
	const remove = 0 // IPC_RMID
	arg := [3]uintptr{uintptr(o.number(kind + "id")), remove, 0}
	switch kind {
	case "sem":
		arg[1], arg[2] = 0, remove
	case "msg":
		arg[0] = uintptr(o.number("msqid"))
	}
	rmid := func() error {
		_, _, errno := unix.Syscall(call, arg[0], arg[1], arg[2])
		if errno == 0 || errno == unix.EINVAL || errno == unix.EIDRM { // or another has removed it
			return nil
		}
		return errno
	}
	err := rmid()
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	owner := int(o.number("uid"))
	if !is(owner) {
		owner = int(o.number("cuid"))
	}
	return asAccount(owner, rmid)
}

// asAccount calls do on a thread whose effective user is an account. Root's real and saved user stay, so no process of
// the account can send the thread a signal or trace it.
func asAccount(uid int, do func() error) error {
	done := make(chan error, 1)
	go func() {
		const same = ^uintptr(0)
		root := uintptr(os.Geteuid())
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("become account %d: %w", uid, errno)
			return
		}
		err := do()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, root, same); errno == 0 {
			runtime.UnlockOSThread() // otherwise the thread ends here
		}
		done <- err
	}()
	return <-done
}

// SweepsQueues reports whether Sweep finds POSIX message queues here. Where /dev/mqueue is not mounted, and this
// process may not mount it, it cannot list them, although a process that knows a name can open the queue: jobs must not
// make any then (Limits.NoQueues).
func SweepsQueues() bool {
	queues, err := openQueues()
	return err == nil && unix.Close(queues) == nil
}

// openQueues opens the file system of POSIX message queues, which need not be mounted.
func openQueues() (int, error) {
	const folder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	const mqueueMagic = 0x19800202
	var stat unix.Statfs_t
	if unix.Statfs("/dev/mqueue", &stat) == nil && stat.Type == mqueueMagic {
		return unix.Open("/dev/mqueue", folder, 0)
	}
	system, err := unix.Fsopen("mqueue", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(system)
	if err := unix.FsconfigCreate(system); err != nil {
		return -1, err
	}
	mount, err := unix.Fsmount(system, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(mount)
	return unix.Openat(mount, ".", folder, 0)
}

// Running returns how many processes besides this one each account has, without zombies.
func Running() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	running := map[int]int{}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		_, line, found := strings.Cut(string(text), "\nUid:\t")
		uid, _, _ := strings.Cut(line, "\t")
		if n, err := strconv.Atoi(uid); found && err == nil && !strings.Contains(string(text), "\nState:\tZ") {
			running[n]++
		}
	}
	return running, nil
}
