package sandbox

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// deniedCalls are the system calls that no build tool needs and that attacks on kernels begin with. They fail with
// EPERM.
var deniedCalls = []uintptr{
	// Mounts and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSPICK,
	unix.SYS_FSMOUNT,
	unix.SYS_FSCONFIG, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE,
	unix.SYS_SETNS,
	unix.SYS_OPEN_TREE_ATTR, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT,
	// The kernel's own programs and its settings.
	unix.SYS_BPF, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_QUOTACTL,
	unix.SYS_SETTIMEOFDAY,
	unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	// Namespaces do not separate keys; handles bypass the folders above a file.
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_OPEN_BY_HANDLE_AT,
	// Favorites of exploits.
	unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN, unix.SYS_MEMFD_SECRET, unix.SYS_IO_URING_SETUP,
	unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

const sysModifyLDT = 154 // on amd64 alone

// debuggerCalls are denied to jobs, but not to workspaces.
var debuggerCalls = []uintptr{unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP}

// personalities are what a process may ask personality(2) for: Linux's own, and which it has. Debuggers and sanitizers
// turn off the randomization of their own addresses.
func personalities(debug bool) []uint32 {
	const query, noRandom = 0xffffffff, 0x0040000 // ADDR_NO_RANDOMIZE
	if debug {
		return []uint32{0, query, noRandom}
	}
	return []uint32{0, query}
}

// Offsets in struct seccomp_data, see seccomp(2).
const (
	dataCall = 0
	dataArch = 4
	dataArgs = 16
)

// newNamespaces are the flags of clone(2) that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// CallFilter returns the filter for this machine, or nil for an unsupported architecture.
func CallFilter(debug bool) []bpf.Instruction {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if arch == 0 {
		return nil
	}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	absent := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	// What libraries expect of a kernel without the family: they do without it.
	unsupported := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)}
	// Load the low half of an argument, which holds all flags and requests examined here.
	argument := func(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: dataArgs + 8*n, Size: 4} }
	program := []bpf.Instruction{
		// Programs for another architecture, such as 32-bit ones, would have other numbers.
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		absent,
		bpf.LoadAbsolute{Off: dataCall, Size: 4},
	}
	if runtime.GOARCH == "amd64" {
		const x32 = 0x40000000
		program = append(program, bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32, SkipFalse: 1}, absent)
	}
	denied := deniedCalls
	if !debug {
		denied = slices.Concat(deniedCalls, debuggerCalls)
	}
	if runtime.GOARCH == "amd64" {
		denied = append(slices.Clone(denied), sysModifyLDT)
	}
	for _, call := range denied {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(call), SkipFalse: 1}, refuse)
	}
	allowed := personalities(debug)
	program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_PERSONALITY,
		SkipFalse: uint8(len(allowed) + 3)}, argument(0))
	for n, personality := range allowed {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: personality, SkipTrue: uint8(len(allowed) - n)})
	}
	return append(program, refuse, allow,
		// Sockets on this host and on the internet, and netlink for what the C library asks about the network's
		// interfaces. All others reach parts of the kernel, or of a hypervisor, that no build needs.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKET, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKETPAIR, SkipFalse: 9},
		argument(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: 2},
		argument(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
		unsupported,
		allow,
		// clone3 has its flags in memory, which a filter cannot read; without it the C library uses clone.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE3, SkipFalse: 1}, absent,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE, SkipFalse: 4},
		argument(0),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1}, refuse,
		allow,
		// This request types into a terminal that another program reads.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_IOCTL, SkipFalse: 4},
		argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tiocLinux, SkipFalse: 1}, refuse,
		allow,
	)
}

const tiocLinux = 0x541c // TIOCLINUX

// filterCalls denies some system calls to the calling thread, and to what it executes and starts. It needs
// no_new_privs, or root.
func filterCalls(debug bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("filter system calls: give up privileges: %w", err)
	}
	raw, err := bpf.Assemble(CallFilter(debug))
	if err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	if len(raw) == 0 {
		return nil
	}
	filter := make([]unix.SockFilter, len(raw))
	for n, in := range raw {
		filter[n] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0,
		0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	runtime.KeepAlive(filter)
	return nil
}
