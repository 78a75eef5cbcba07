package ports

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

var getExtendedTCPTable = windows.NewLazySystemDLL("iphlpapi.dll").NewProc("GetExtendedTcpTable")

const (
	listeners = 3 // TCP_TABLE_OWNER_PID_LISTENER of iprtrmib.h
	// tableTries bounds how often a table is read again because it grew meanwhile.
	tableTries = 8
)

// A layout says where a row of a table has its fields: MIB_TCPROW_OWNER_PID and MIB_TCP6ROW_OWNER_PID of tcpmib.h.
type layout struct{ family, row, addr, addrLen, port, pid int }

var layouts = []layout{
	{windows.AF_INET, 24, 4, 4, 8, 20},
	{windows.AF_INET6, 56, 0, 16, 20, 52},
}

// Listening returns the TCP ports that are reachable on the loopback interface, ordered by number.
func Listening() ([]Port, error) {
	byPort := map[uint16]string{}
	for _, l := range layouts {
		table, err := read(l.family)
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		for port, pid := range parse(table, l) {
			if byPort[port] == "" {
				byPort[port] = programName(pid)
			}
		}
	}
	return ordered(byPort), nil
}

// read returns a table: the number of its rows, and the rows.
func read(family int) ([]byte, error) {
	if err := getExtendedTCPTable.Find(); err != nil {
		return nil, err
	}
	table := make([]byte, 4<<10)
	for range tableTries {
		size := uint32(len(table))
		code, _, _ := getExtendedTCPTable.Call(uintptr(unsafe.Pointer(&table[0])), uintptr(unsafe.Pointer(&size)), 0,
			uintptr(family), listeners, 0)
		switch err := windows.Errno(code); {
		case code == 0:
			return table, nil
		case !errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER):
			return nil, err
		}
		table = make([]byte, max(int(size), 2*len(table)))
	}
	return nil, errors.New("the table grows faster than it can be read")
}

// parse returns the ports of a table with the ids of their processes.
func parse(table []byte, l layout) map[uint16]uint32 {
	found := map[uint16]uint32{}
	if len(table) < 4 {
		return found
	}
	count := binary.LittleEndian.Uint32(table)
	for rows := table[4:]; count > 0 && len(rows) >= l.row; rows, count = rows[l.row:], count-1 {
		addr, ok := netip.AddrFromSlice(rows[l.addr : l.addr+l.addrLen])
		port := binary.BigEndian.Uint16(rows[l.port:])
		if ok && port != 0 && reachable(addr) {
			found[port] = binary.LittleEndian.Uint32(rows[l.pid:])
		}
	}
	return found
}

// programName returns the name of a process's program, or "" if it has ended or is another account's.
func programName(pid uint32) string {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(process)
	path := make([]uint16, windows.MAX_LONG_PATH)
	size := uint32(len(path))
	if err := windows.QueryFullProcessImageName(process, 0, &path[0], &size); err != nil {
		return ""
	}
	name := filepath.Base(windows.UTF16ToString(path[:size]))
	if ext := filepath.Ext(name); strings.EqualFold(ext, ".exe") {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}
