package sandbox

import (
	"bytes"
	"fmt"
	"os"
)

// boundedLog is a log file that never holds more than bound bytes: its older half is removed when it is full. What
// cannot be written is lost, so that the program that prints it never stops.
type boundedLog struct {
	file        *os.File // opened to read, and to append
	size, bound int64
}

const cutNotice = "--- the log is full: its older half was removed\n"

// openBoundedLog takes the log that an open file is. A bound of 0 means none.
func openBoundedLog(file *os.File, bound int64) (*boundedLog, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at log: %w", err)
	}
	if !info.Mode().IsRegular() {
		bound = 0
	}
	return &boundedLog{file: file, size: info.Size(), bound: bound}, nil
}

// Write appends data. It reports no error.
func (l *boundedLog) Write(data []byte) (int, error) {
	all := len(data)
	if l.bound > 0 && l.size+int64(len(data)) > l.bound {
		data = data[max(0, len(data)-int(l.bound/4)):]
		if !l.cut(l.bound / 2) {
			return all, nil
		}
	}
	n, _ := l.file.Write(data) // lost, see above
	l.size += int64(n)
	return all, nil
}

// cut leaves the last keep bytes, from the beginning of a line. It reports whether there is room again.
func (l *boundedLog) cut(keep int64) bool {
	rest := make([]byte, min(keep, l.size))
	n, _ := l.file.ReadAt(rest, l.size-int64(len(rest))) // what cannot be read is removed
	rest = rest[:n]
	if _, after, ok := bytes.Cut(rest, []byte("\n")); ok {
		rest = after
	}
	if l.file.Truncate(0) != nil {
		return false
	}
	n, _ = l.file.Write(append([]byte(cutNotice), rest...))
	l.size = int64(n)
	return true
}
