// Package printable makes what templates and Terraform write fit for logs, databases and terminals. It must not know
// what is written, nor by which job.
package printable

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/tty"
)

// MaxLine is how many bytes of one line stay.
const MaxLine = 8 << 10

// Line returns valid, printable text of at most MaxLine bytes, and a note if it cut some of the line off.
func Line(line string) string {
	line, note := cut(line)
	return tty.Clean(line) + note
}

// LogLine is Line for a log, which keeps colours.
func LogLine(line string) string {
	line, note := cut(line)
	return tty.CleanColor(line) + note
}

// cut bounds a line to MaxLine bytes of whole characters.
func cut(line string) (kept, note string) {
	line = strings.TrimRight(line, "\r")
	if len(line) <= MaxLine {
		return line, ""
	}
	note = fmt.Sprintf(" … (cut: the line has %d bytes)", len(line))
	line = line[:MaxLine]
	for len(line) > 0 && !utf8.RuneStart(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	if r, _ := utf8.DecodeLastRuneInString(line); r == utf8.RuneError && len(line) > 0 {
		line = line[:len(line)-1]
	}
	return line, note
}

// UUID returns the usual form of a UUID's 16 bytes, or "" for anything else.
func UUID(raw []byte) string {
	id, err := uuid.FromBytes(raw)
	if err != nil {
		return ""
	}
	return id.String()
}
