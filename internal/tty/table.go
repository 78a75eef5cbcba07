package tty

import (
	"io"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// Table holds rows of text in columns as wide as their widest cell, measured in terminal cells.
type Table struct {
	Header []string
	Rows   [][]string
	// Style returns a cell's color. Nil means that there are none.
	Style func(column int, cell string) Tone
}

// Tone is the color of a cell.
type Tone string

const (
	Plain Tone = ""
	Good  Tone = "32"
	Busy  Tone = "33"
	Bad   Tone = "31"
	Quiet Tone = "2"
)

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write prints the header in capitals, and the rows if there are any.
func (t *Table) Write(w io.Writer) error {
	widths := make([]int, len(t.Header))
	rows := make([][]string, 0, len(t.Rows)+1)
	header := make([]string, len(t.Header))
	for i, h := range t.Header {
		header[i] = strings.ToUpper(h)
	}
	rows = append(rows, header)
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = strings.ReplaceAll(Clean(cell), "\n", " ")
		}
		rows = append(rows, cells)
	}
	for _, row := range rows {
		for i, cell := range row[:min(len(row), len(widths))] {
			widths[i] = max(widths[i], displaywidth.String(cell))
		}
	}
	var out strings.Builder
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row[:min(len(row), len(widths))] {
			tone := Plain
			if t.Style != nil && n > 0 {
				tone = t.Style(i, cell)
			}
			if tone == Plain {
				line.WriteString(cell)
			} else {
				line.WriteString("\x1b[" + string(tone) + "m" + cell + reset)
			}
			line.WriteString(strings.Repeat(" ", max(widths[i]-displaywidth.String(cell), 0)+2))
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}
