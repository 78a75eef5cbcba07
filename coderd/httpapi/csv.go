package httpapi

import (
	"encoding/csv"
	"net/http"
	"strings"
	"time"
)

// CSV is a table that a route answers with, as a file of comma-separated values (RFC 4180) in UTF-8.
type CSV struct {
	out *csv.Writer
}

// NewCSV sets the headers of an answer. The caller writes the status and then the rows, of which the first names the
// columns, and calls Close.
func NewCSV(w http.ResponseWriter, file string) *CSV {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	w.Header().Set("Content-Disposition", `attachment; filename="`+file+`"`)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	NoStore(w.Header())
	return &CSV{csv.NewWriter(w)}
}

// Row writes a row. Close returns its error.
func (t *CSV) Row(cells ...string) {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = inert(cell)
	}
	_ = t.out.Write(safe) // Close reports it: the writer keeps the first error
}

// Close writes what is buffered, and returns an error if the client has disconnected.
func (t *CSV) Close() error {
	t.out.Flush()
	return t.out.Error()
}

// inert returns a cell that a spreadsheet shows as text: users choose names, and a spreadsheet runs what begins like a
// formula. A single quote in front of it prevents that, as OWASP recommends.
func inert(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// CSVTime formats a time for a cell: RFC 3339 in UTC, "" for nil.
func CSVTime(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
