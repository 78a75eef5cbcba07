//go:build unix && !darwin

package ports

import (
	"bufio"
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

// Listening returns the workspace's TCP ports that are reachable on the loopback interface, ordered by number. It reads
// the file descriptors of all processes of this account.
func Listening() ([]Port, error) { return listening("/proc") }

func listening(proc string) ([]Port, error) {
	sockets := map[uint64]socket{}
	for _, name := range []string{"tcp", "tcp6"} {
		file, err := os.Open(filepath.Join(proc, "net", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without it
		}
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		err = parse(file, sockets)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
	}
	programs, accounts := visible(proc, sockets)
	byPort := map[uint16]string{}
	for inode, s := range sockets {
		if programs[inode] == "" && !accounts[s.account] {
			continue // another program of the host
		}
		if programs[inode] != "" || byPort[s.port] == "" {
			byPort[s.port] = programs[inode]
		}
	}
	return ordered(byPort), nil
}

// socket is a socket that listens.
type socket struct {
	port    uint16
	account uint32 // user id of the program that made it
}

// stateListen is TCP_LISTEN of the kernel's include/net/tcp_states.h.
const stateListen = "0A"

// parse parses a table in the format of /proc/net/tcp: number, local address, remote address, state, …; the eighth
// field is the user id, the tenth the inode.
func parse(r io.Reader, sockets map[uint64]socket) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		addr, ok := parseAddr(f[1])
		if !ok || !reachable(addr.Addr()) {
			continue
		}
		account, err := strconv.ParseUint(f[7], 10, 32)
		if err != nil {
			continue
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err == nil && addr.Port() != 0 {
			sockets[inode] = socket{addr.Port(), uint32(account)}
		}
	}
	return lines.Err()
}

// parseAddr parses an address such as "0100007F:1F90": words of four bytes in the machine's order, little endian on our
// platforms.
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

// visible maps sockets to the names of the programs that have them open, which it knows of processes that this account
// may inspect, and returns the accounts of all processes that it sees.
func visible(proc string, sockets map[uint64]socket) (programs map[uint64]string, accounts map[uint32]bool) {
	programs, accounts = map[uint64]string{}, map[uint32]bool{}
	processes, err := os.ReadDir(proc)
	if err != nil {
		return programs, accounts
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := filepath.Join(proc, p.Name())
		if status, err := os.ReadFile(filepath.Join(dir, "status")); err == nil {
			if account, ok := effectiveAccount(string(status)); ok {
				accounts[account] = true
			}
		}
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
			if _, listens := sockets[inode]; !ok || err != nil || !listens || programs[inode] != "" {
				continue
			}
			if name, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
				programs[inode] = strings.TrimSpace(strings.ToValidUTF8(string(name), "\uFFFD"))
			}
		}
	}
	return programs, accounts
}

// effectiveAccount returns the effective user id in the text of /proc/PID/status, whose line "Uid:" has the real one
// before it.
func effectiveAccount(status string) (uint32, bool) {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			f := strings.Fields(ids)
			if len(f) < 2 {
				return 0, false
			}
			id, err := strconv.ParseUint(f[1], 10, 32)
			return uint32(id), err == nil
		}
	}
	return 0, false
}
