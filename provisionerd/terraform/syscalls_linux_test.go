package terraform_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// attackCalls runs inside a job. It makes the system calls and opens the files that attacks on a kernel and on other processes begin with,
// and prints those that were not refused.
func attackCalls(daemon string) error {
	callKernel()
	openSockets()
	openFiles(daemon)
	// The same methods work on what is the job's own.
	if own, err := os.ReadFile("/proc/self/environ"); err != nil || len(own) == 0 {
		return fmt.Errorf("read its own environment: %w", err)
	}
	if err := os.WriteFile("own", nil, 0o600); err != nil {
		return err
	}
	if err := os.Link("own", "link"); err != nil {
		return err
	}
	fmt.Println("END")
	return nil
}

// reached prints what an attack reached, if it met no error.
func reached(what string, err error) {
	if err == nil {
		fmt.Printf("REACHED <%s>\n", what)
	}
}

// callKernel makes the system calls that a job must not make.
func callKernel() {
	path, buf := []byte("/\x00"), make([]byte, 4096)
	root, out := uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&buf[0]))
	here := ^uintptr(99) // AT_FDCWD
	for _, c := range []struct {
		name string
		call uintptr
		args [5]uintptr
	}{
		{"unshare, a user namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWUSER}},
		{"unshare, a mount namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWNS}},
		{"setns", unix.SYS_SETNS, [5]uintptr{^uintptr(0)}},
		{"clone3", unix.SYS_CLONE3, [5]uintptr{out, 64}},
		{"chroot", unix.SYS_CHROOT, [5]uintptr{root}},
		{"pivot_root", unix.SYS_PIVOT_ROOT, [5]uintptr{root, root}},
		{"mount", unix.SYS_MOUNT, [5]uintptr{0, root, 0, unix.MS_REMOUNT}},
		{"umount", unix.SYS_UMOUNT2, [5]uintptr{root}},
		{"open_tree", unix.SYS_OPEN_TREE, [5]uintptr{here, root, unix.OPEN_TREE_CLONE}},
		{"open_tree_attr", 467, [5]uintptr{here, root, unix.OPEN_TREE_CLONE}},
		{"move_mount", unix.SYS_MOVE_MOUNT, [5]uintptr{here, root, here, root}},
		{"fsopen", unix.SYS_FSOPEN, [5]uintptr{root}},
		{"fspick", unix.SYS_FSPICK, [5]uintptr{here, root}},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, [5]uintptr{here, root}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [5]uintptr{4, out}},
		{"userfaultfd", unix.SYS_USERFAULTFD, [5]uintptr{1}}, // of user mode only, which needs no privilege
		{"bpf", unix.SYS_BPF, [5]uintptr{0, out, 128}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [5]uintptr{out, 0, ^uintptr(0), ^uintptr(0)}},
		{"keyctl", unix.SYS_KEYCTL, [5]uintptr{0, ^uintptr(2), 1}},
		{"add_key", unix.SYS_ADD_KEY, [5]uintptr{root, root, out, 1}},
		{"request_key", unix.SYS_REQUEST_KEY, [5]uintptr{root, root}},
		{"ptrace", unix.SYS_PTRACE, [5]uintptr{unix.PTRACE_TRACEME}},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [5]uintptr{1}},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [5]uintptr{1}},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [5]uintptr{^uintptr(0)}},
		{"kcmp", unix.SYS_KCMP, [5]uintptr{uintptr(os.Getpid()), uintptr(os.Getpid())}},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [5]uintptr{here, out}},
		{"syslog", unix.SYS_SYSLOG, [5]uintptr{3, out, 100}},
		{"quotactl", unix.SYS_QUOTACTL, [5]uintptr{0, root}},
		{"swapoff", unix.SYS_SWAPOFF, [5]uintptr{root}},
		{"delete_module", unix.SYS_DELETE_MODULE, [5]uintptr{root}},
	} {
		if _, _, err := unix.Syscall6(c.call, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
			fmt.Printf("REACHED <the call %s>: %v\n", c.name, err)
		}
	}
}

// openSockets opens the sockets that pass the kernel's network stack by.
func openSockets() {
	for _, c := range []struct {
		name              string
		domain, kind, way int
	}{{"packets", unix.AF_PACKET, unix.SOCK_RAW, 0}, {"raw IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {"XDP", unix.AF_XDP, unix.SOCK_RAW, 0}} {
		if fd, err := unix.Socket(c.domain, c.kind, c.way); err == nil {
			fmt.Printf("REACHED <a socket for %s>\n", c.name)
			unix.Close(fd)
		}
	}
}

// openFiles opens what other processes and the machine keep in files, in ways that would also work with the job's own.
func openFiles(daemon string) {
	for _, name := range []string{"environ", "maps", "mem", "cwd", "root", "fd"} {
		for _, process := range []string{daemon, "1"} {
			file := filepath.Join("/proc", process, name)
			data, err := os.ReadFile(file)
			if errors.Is(err, unix.EISDIR) {
				var entries []os.DirEntry
				entries, err = os.ReadDir(file)
				data = make([]byte, len(entries))
			}
			if err == nil && len(data) > 0 {
				reached(file, nil)
			}
		}
	}
	for _, name := range []string{"/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/etc/shadow", "/root/.bashrc"} {
		f, err := os.Open(name)
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			f.Close()
		}
		reached("reading "+name, err)
	}
	for _, name := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent", "/sys/kernel/uevent_helper",
		"/etc/x", "/usr/x", "/usr/bin/x", "/run/x", "/run/codermesh/x", "/opt/x", "/root/x",
	} {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600) // only opened: it would do harm to write
		if err == nil {
			f.Close()
		}
		reached("writing "+name, err)
	}
	reached("escaping the kernel's choice of victims", os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0))
	for _, name := range []string{"/etc/passwd", "/usr/bin/env", "/etc/shadow"} {
		reached("a hard link to "+name, os.Link(name, "link"))
	}
	reached("a block device", unix.Mknod("device", unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
	reached("a character device", unix.Mknod("device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))))
}

// TestSystemCalls makes a job call the kernel directly, without the programs of the host that a shell would use.
func TestSystemCalls(t *testing.T) {
	for _, mode := range []string{"namespaces", "accounts alone"} {
		t.Run(mode, func(t *testing.T) {
			e := newExecutor(t, func(o *terraform.Options) {
				if mode == "accounts alone" {
					*o = withoutBubblewrap(t)
				}
			})
			log, result := runScript(t, e, fmt.Sprintf("exec \"$CODER_PROVISIONER_PROGRAM\" attack-calls %d\n", os.Getpid()))
			if result.GetError() != "" || !strings.Contains(log, "END\n") {
				t.Fatalf("the attack did not run: %s\n%s", result.GetError(), log)
			}
			for line := range strings.Lines(log) {
				if strings.Contains(line, "REACHED <") {
					t.Errorf("with %s: %s", e.Isolation(), line)
				}
			}
		})
	}
}
