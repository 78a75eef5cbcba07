package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// account returns the nth of four accounts that no server has, and no other process that runs these tests: what they own is this process's.
func account(n int) int { return 900_000_000 + 4*os.Getpid() + n }

// scratch is a folder that everyone may write to, in which jobs of two accounts leave files.
type scratch struct {
	t           *testing.T
	dir         string
	mine, other int
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	return &scratch{t, openDir(t), account(0), account(1)}
}

// openDir returns a new folder that everyone may write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// put makes a file or folder of an account, with the folders above it.
func (s *scratch) put(name string, uid int, mode os.FileMode) string {
	s.t.Helper()
	name = filepath.Join(s.dir, name)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil && mode.IsDir() {
		err = os.Mkdir(name, 0o700)
	} else if err == nil {
		err = os.WriteFile(name, []byte("x"), 0o600)
	}
	if err == nil {
		err = os.Chown(name, uid, uid)
	}
	if err == nil {
		err = os.Chmod(name, mode)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return name
}

// link makes a link that is mine.
func (s *scratch) link(name, to string) {
	s.t.Helper()
	name = filepath.Join(s.dir, name)
	if err := os.Symlink(to, name); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Lchown(name, s.mine, s.mine); err != nil {
		s.t.Fatal(err)
	}
}

// nest makes 300 folders inside each other, all mine.
func (s *scratch) nest(name string) {
	s.t.Helper()
	fd, err := syscall.Open(s.put(name, s.mine, os.ModeDir), syscall.O_DIRECTORY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for range 300 {
		if err := syscall.Mkdirat(fd, "deep", 0o700); err != nil {
			s.t.Fatal(err)
		}
		next, err := syscall.Openat(fd, "deep", syscall.O_DIRECTORY, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := syscall.Fchown(next, s.mine, s.mine); err != nil {
			s.t.Fatal(err)
		}
		syscall.Close(fd)
		fd = next
	}
	syscall.Close(fd)
}

// queue makes a message queue that is mine. It returns what removes it, with the answer of the kernel.
func (s *scratch) queue() (remove func() syscall.Errno) {
	s.t.Helper()
	name := append([]byte("cm-test-"+filepath.Base(filepath.Dir(s.dir))), 0)
	number, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
	if errno != 0 {
		s.t.Fatal(errno)
	}
	if err := errors.Join(unix.Fchown(int(number), s.mine, s.mine), unix.Close(int(number))); err != nil {
		s.t.Fatal(err)
	}
	return func() syscall.Errno {
		_, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0)
		return errno
	}
}

// leavings is what an account has left, to count and to sweep.
func (s *scratch) leavings(uid int) sandbox.Leavings {
	return sandbox.Leavings{
		Dirs: []string{s.dir, filepath.Join(s.dir, "missing")}, Of: func(owner int) bool { return owner == uid },
		Jobs: func(owner int) bool { return owner == s.mine || owner == s.other },
	}
}

// TestSweepOfAccounts: of the files in a folder that everyone may write to, exactly those of the account go, wherever it was able to put them, and
// nothing that a link of its names.
func TestSweepOfAccounts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	const human = 1000
	s, victim := newScratch(t), openDir(t)
	mine, other := s.mine, s.other
	precious := filepath.Join(victim, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(precious, mine, mine); err != nil { // even if it is its own, a link does not lead there
		t.Fatal(err)
	}
	s.put("folder", mine, os.ModeDir)
	s.put("folder/file", mine, 0)
	s.put("shell", mine, os.ModeSetuid|0o755)
	s.link("folder/to-folder", victim)
	s.link("to-file", precious)
	s.put("open", human, os.ModeDir|0o777)
	s.put("open/planted", mine, 0o600)
	kept := []string{s.put("open/kept", human, 0o600)}
	s.put("of-another-job", other, os.ModeDir) // it was open when the file came
	s.put("of-another-job/planted", mine, 0o600)
	kept = append(kept, s.put("of-another-job/kept", other, 0o600))
	s.nest("deep")
	removeQueue := s.queue()
	if _, files := s.leavings(mine).Usage(); files < 1<<20 {
		t.Errorf("a job that nests 300 folders is counted with %d files", files)
	}
	if err := s.leavings(mine).Sweep(); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if errno := removeQueue(); errno != unix.ENOENT {
		t.Errorf("the message queue is left: %v", errno)
	}
	if err := filepath.WalkDir(s.dir, func(name string, _ os.DirEntry, err error) error {
		info, lerr := os.Lstat(name)
		if err == nil && lerr == nil && int(info.Sys().(*syscall.Stat_t).Uid) == mine {
			t.Errorf("%s is left", name)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for _, name := range append(kept, precious) {
		if _, err := os.Lstat(name); err != nil {
			t.Errorf("it was removed: %v", err)
		}
	}
	// What holds another's file stays, and is reported until that is gone.
	s.put("mixed", mine, os.ModeDir|0o777)
	foreign := s.put("mixed/foreign", other, 0o600)
	if err := s.leavings(mine).Sweep(); err == nil {
		t.Error("a folder with another's file was not reported")
	}
	if err := s.leavings(other).Sweep(); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if err := s.leavings(mine).Sweep(); err != nil {
		t.Errorf("sweep again: %v", err)
	}
	if _, err := os.Lstat(filepath.Dir(foreign)); err == nil {
		t.Error("the folder is left")
	}
	for n := range 3 {
		s.put("counted"+strconv.Itoa(n), mine, 0o600)
	}
	if bytes, files := s.leavings(mine).Usage(); files != 3 || bytes == 0 {
		t.Errorf("three files are counted as %d with %d bytes", files, bytes)
	}
}

// TestSweepOfIPC: what an account left in System V IPC goes, also without CAP_SYS_ADMIN, as in most containers, and nothing of another account.
func TestSweepOfIPC(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has accounts to give")
	}
	mine, other := account(2), account(3)
	for _, capable := range []bool{true, false} {
		left := map[string]bool{}
		for _, uid := range []int{mine, other} {
			onThread(t, func() error {
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
					return errno
				}
				for name, get := range map[string][4]uintptr{
					"shm": {unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, 0o666 | unix.IPC_CREAT},
					"sem": {unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, 0o666 | unix.IPC_CREAT},
					"msg": {unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o666 | unix.IPC_CREAT, 0},
				} {
					if _, _, errno := unix.Syscall(get[0], get[1], get[2], get[3]); errno != 0 {
						return fmt.Errorf("%s: %w", name, errno)
					}
				}
				return nil
			})
		}
		sweep := func(uid int) {
			t.Helper()
			onThread(t, func() error {
				if !capable {
					if err := dropSysAdmin(); err != nil {
						return err
					}
				}
				return sandbox.Leavings{Of: func(owner int) bool { return owner == uid }, Jobs: func(int) bool { return false }}.Sweep()
			})
		}
		sweep(mine)
		for _, kind := range []string{"shm", "sem", "msg"} {
			text, err := os.ReadFile("/proc/sysvipc/" + kind)
			if err != nil {
				t.Fatal(err)
			}
			for _, uid := range []int{mine, other} {
				left[fmt.Sprint(kind, uid == mine)] = strings.Contains(string(text), fmt.Sprintf(" %d ", uid))
			}
		}
		sweep(other)
		for what, there := range left {
			if want := strings.HasSuffix(what, "false"); there != want {
				t.Errorf("with CAP_SYS_ADMIN %t, %s of the swept account: left %t", capable, what, there)
			}
		}
	}
}

// onThread calls do on a thread of its own, whose credentials it may change: the thread ends with it.
func onThread(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- do()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// dropSysAdmin takes CAP_SYS_ADMIN from the thread.
func dropSysAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, set := range []*uint32{&data[0].Effective, &data[0].Permitted, &data[0].Inheritable} {
		*set &^= 1 << unix.CAP_SYS_ADMIN
	}
	return unix.Capset(&header, &data[0])
}
