package sandbox

import (
	"encoding/binary"
	"runtime"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestCallFilter runs the filter on calls. The machine of package bpf reads big-endian words, unlike the kernel.
func TestCallFilter(t *testing.T) {
	t.Parallel()
	const (
		allow       = uint32(unix.SECCOMP_RET_ALLOW)
		refuse      = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
		absent      = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
		unsupported = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EAFNOSUPPORT)
	)
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	type try struct {
		call           uint32
		args           [3]uint32
		job, workspace uint32
	}
	tries := map[string]try{
		"read":                      {unix.SYS_READ, [3]uint32{}, allow, allow},
		"mount":                     {unix.SYS_MOUNT, [3]uint32{}, refuse, refuse},
		"open_tree_attr":            {467, [3]uint32{}, refuse, refuse},
		"statmount":                 {457, [3]uint32{}, refuse, refuse},
		"listmount":                 {458, [3]uint32{}, refuse, refuse},
		"memfd_create":              {unix.SYS_MEMFD_CREATE, [3]uint32{}, allow, allow},
		"memfd_secret":              {447, [3]uint32{}, refuse, refuse},
		"ptrace":                    {unix.SYS_PTRACE, [3]uint32{}, refuse, allow},
		"clone":                     {unix.SYS_CLONE, [3]uint32{unix.CLONE_VM}, allow, allow},
		"clone, a namespace":        {unix.SYS_CLONE, [3]uint32{unix.CLONE_NEWUSER}, refuse, refuse},
		"clone3":                    {unix.SYS_CLONE3, [3]uint32{}, absent, absent},
		"ioctl":                     {unix.SYS_IOCTL, [3]uint32{0, unix.TIOCGWINSZ}, allow, allow},
		"ioctl TIOCSTI":             {unix.SYS_IOCTL, [3]uint32{0, unix.TIOCSTI}, refuse, refuse},
		"personality":               {unix.SYS_PERSONALITY, [3]uint32{0}, allow, allow},
		"personality, query":        {unix.SYS_PERSONALITY, [3]uint32{0xffffffff}, allow, allow},
		"personality, fixed":        {unix.SYS_PERSONALITY, [3]uint32{0x0040000}, refuse, allow},
		"personality, 32 bits":      {unix.SYS_PERSONALITY, [3]uint32{8}, refuse, refuse},
		"personality, read implies": {unix.SYS_PERSONALITY, [3]uint32{0x0400000}, refuse, refuse},
		"socket unix":               {unix.SYS_SOCKET, [3]uint32{unix.AF_UNIX, unix.SOCK_STREAM}, allow, allow},
		"socketpair unix":           {unix.SYS_SOCKETPAIR, [3]uint32{unix.AF_UNIX, unix.SOCK_STREAM}, allow, allow},
		"socket inet":               {unix.SYS_SOCKET, [3]uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allow, allow},
		"socket inet6":              {unix.SYS_SOCKET, [3]uint32{unix.AF_INET6, unix.SOCK_DGRAM}, allow, allow},
		"netlink route":             {unix.SYS_SOCKET, [3]uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow, allow},
		"netlink sock_diag":         {unix.SYS_SOCKET, [3]uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG}, unsupported, unsupported},
		"netlink netfilter":         {unix.SYS_SOCKET, [3]uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, unsupported, unsupported},
		"socket vsock":              {unix.SYS_SOCKET, [3]uint32{unix.AF_VSOCK, unix.SOCK_STREAM}, unsupported, unsupported},
		"socket alg":                {unix.SYS_SOCKET, [3]uint32{unix.AF_ALG, unix.SOCK_SEQPACKET}, unsupported, unsupported},
		"socket packet":             {unix.SYS_SOCKET, [3]uint32{unix.AF_PACKET, unix.SOCK_RAW}, unsupported, unsupported},
		"socketpair tipc":           {unix.SYS_SOCKETPAIR, [3]uint32{unix.AF_TIPC, unix.SOCK_STREAM}, unsupported, unsupported},
	}
	if runtime.GOARCH == "amd64" {
		tries["modify_ldt"] = try{154, [3]uint32{1}, refuse, refuse}
	}
	for debug, want := range map[bool]func(try) uint32{false: func(c try) uint32 { return c.job }, true: func(c try) uint32 { return c.workspace }} {
		machine, err := bpf.NewVM(CallFilter(debug))
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range tries {
			data := make([]byte, 64)
			binary.BigEndian.PutUint32(data[dataCall:], c.call)
			binary.BigEndian.PutUint32(data[dataArch:], arch)
			for n, arg := range c.args {
				binary.BigEndian.PutUint32(data[dataArgs+8*n:], arg)
			}
			if got, err := machine.Run(data); err != nil || uint32(got) != want(c) {
				t.Errorf("%s (workspace %v): %#x, want %#x, %v", name, debug, got, want(c), err)
			}
		}
	}
}
