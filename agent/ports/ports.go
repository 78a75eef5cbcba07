// Package ports lists the TCP ports on which programs of this host listen. It reads /proc and nothing else.
// github.com/prometheus/procfs would do the same and add 100 kB to the slim binary.
package ports

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Port describes a port on which a program listens.
type Port struct {
	Process string // name of the program, "" when it is another user's
	Network string // "tcp"
	Port    uint16
}

// maxPorts bounds how many ports Listening returns.
const maxPorts = 1024

// Listening returns the TCP ports that are reachable on the loopback interface, ordered by number. It reads the file descriptors of all
// processes of this account.
func Listening() ([]Port, error) { return listening("/proc") }

func listening(proc string) ([]Port, error) {
	inodes := map[uint64]uint16{}
	for _, name := range []string{"tcp", "tcp6"} {
		file, err := os.Open(filepath.Join(proc, "net", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without it
		}
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		err = parse(file, inodes)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
	}
	owners := owners(proc, inodes)
	byPort := map[uint16]string{}
	for inode, port := range inodes {
		if owners[inode] != "" || byPort[port] == "" {
			byPort[port] = owners[inode]
		}
	}
	ports := make([]Port, 0, len(byPort))
	for port, process := range byPort {
		ports = append(ports, Port{process, "tcp", port})
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Port, b.Port) })
	return ports[:min(len(ports), maxPorts)], nil
}

// stateListen is TCP_LISTEN of the kernel's include/net/tcp_states.h.
const stateListen = "0A"

// parse parses a table in the format of /proc/net/tcp: number, local address, remote address, state, …; the tenth field is the inode.
func parse(r io.Reader, inodes map[uint64]uint16) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		addr, ok := parseAddr(f[1])
		if !ok || !addr.Addr().IsUnspecified() && !addr.Addr().Unmap().IsLoopback() {
			continue // a forward cannot reach it
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err == nil && addr.Port() != 0 {
			inodes[inode] = addr.Port()
		}
	}
	return lines.Err()
}

// parseAddr parses an address such as "0100007F:1F90": words of four bytes in the machine's order, little endian on our platforms.
func parseAddr(text string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	raw, hexErr := hex.DecodeString(host)
	if !ok || err != nil || hexErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}

// owners maps sockets to the names of the programs that have them open. It sees only processes that this account may inspect.
func owners(proc string, inodes map[uint64]uint16) map[uint64]string {
	found := map[uint64]string{}
	processes, err := os.ReadDir(proc)
	if err != nil {
		return found
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := filepath.Join(proc, p.Name())
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // it has ended, or is another user's
		}
		for _, fd := range fds {
			link, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			if err != nil {
				continue
			}
			number, ok := strings.CutPrefix(link, "socket:[")
			inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
			if _, listens := inodes[inode]; !ok || err != nil || !listens || found[inode] != "" {
				continue
			}
			if name, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
				found[inode] = strings.TrimSpace(strings.ToValidUTF8(string(name), "\uFFFD"))
			}
		}
	}
	return found
}
