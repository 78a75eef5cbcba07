package memory

import (
	"bufio"
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// freeProgram unmaps the pages of the program's file. Most of them were used once, at the start. The system keeps them
// in its cache as long as it has memory to spare, and maps a page again when it is used.
func freeProgram() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		start, length, ok := programPart(lines.Bytes(), path)
		if !ok {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return lines.Err()
}

// programPart reads a line of /proc/PID/maps (proc_pid_maps(5)). ok: the line is a mapping of the file at path that
// no program can have written to, so that its pages can be read from the file again.
func programPart(line []byte, path string) (start, length uintptr, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) < 6 || !bytes.HasSuffix(line, append([]byte{' '}, path...)) {
		return 0, 0, false
	}
	if mode := fields[1]; len(mode) != 4 || mode[0] != 'r' || mode[1] != '-' || mode[3] != 'p' {
		return 0, 0, false
	}
	first, last, found := bytes.Cut(fields[0], []byte{'-'})
	from, err1 := strconv.ParseUint(string(first), 16, strconv.IntSize)
	to, err2 := strconv.ParseUint(string(last), 16, strconv.IntSize)
	if !found || err1 != nil || err2 != nil || from >= to {
		return 0, 0, false
	}
	return uintptr(from), uintptr(to - from), true
}
