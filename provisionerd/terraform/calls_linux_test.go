package terraform_test

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// refusedCalls are system calls that no job and no workspace may make; allowedCalls look like them.
var (
	refusedCalls = map[string][4]uintptr{
		"socket vsock":              {unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM},
		"socket netlink audit":      {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		"socket netlink netfilter":  {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		"socket netlink sock_diag":  {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
		"socket netlink generic":    {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
		"socket alg":                {unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET},
		"socket packet":             {unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW},
		"socketpair tipc":           {unix.SYS_SOCKETPAIR, unix.AF_TIPC, unix.SOCK_STREAM},
		"memfd_secret":              {unix.SYS_MEMFD_SECRET},
		"personality of 32 bits":    {unix.SYS_PERSONALITY, 8},
		"personality of old kernel": {unix.SYS_PERSONALITY, 0x0020000},
	}
	allowedCalls = map[string][4]uintptr{
		"socket unix":          {unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM},
		"socket inet":          {unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM},
		"socket netlink route": {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
		"personality, a query": {unix.SYS_PERSONALITY, 0xffffffff},
		"personality of linux": {unix.SYS_PERSONALITY, 0},
	}
)

// tryCall is the command "try-call" of this test's program: it fails if the named call does.
func tryCall(name string) error {
	call, ok := refusedCalls[name]
	if !ok {
		call = allowedCalls[name]
	}
	if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
		return fmt.Errorf("%s: %w", name, errno)
	}
	return nil
}
