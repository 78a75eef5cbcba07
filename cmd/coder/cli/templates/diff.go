package templates

import (
	"fmt"
	"slices"
	"strings"
)

// around is how many unchanged lines a diff shows around each change.
const around = 3

// mostPairs bounds the memory of a comparison. Longer stretches are shown as deleted and added as a whole.
const mostPairs = 4 << 20

// line is a line of a diff: kept (' '), deleted ('-') or added ('+').
type line struct {
	mark byte
	text string // with its line end, if it has one
}

// unified returns a unified diff of a file's text, or "" if both are the same.
func unified(name, before, after string) string {
	lines := compare(slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after)))
	var out strings.Builder
	was, is := 1, 1 // line numbers at the position at
	for at := 0; at < len(lines); {
		next := slices.IndexFunc(lines[at:], func(l line) bool { return l.mark != ' ' })
		if next < 0 {
			break
		}
		skipped := max(next-around, 0)
		at, was, is = at+skipped, was+skipped, is+skipped
		end := hunkEnd(lines, at)
		deleted, added := 0, 0
		for _, l := range lines[at:end] {
			if l.mark != '+' {
				deleted++
			}
			if l.mark != '-' {
				added++
			}
		}
		if out.Len() == 0 {
			fmt.Fprintf(&out, "--- %[1]s\n+++ %[1]s\n", name)
		}
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n", was, deleted, is, added)
		for _, l := range lines[at:end] {
			out.WriteByte(l.mark)
			out.WriteString(l.text)
			if !strings.HasSuffix(l.text, "\n") {
				out.WriteString("\n\\ No newline at end of file\n")
			}
		}
		at, was, is = end, was+deleted, is+added
	}
	return out.String()
}

// hunkEnd returns where the hunk that begins at a position ends: after the lines around its last change. Changes that are close share a hunk.
func hunkEnd(lines []line, at int) int {
	end, kept := at, 0
	for i := at; i < len(lines) && kept <= 2*around; i++ {
		kept++
		if lines[i].mark != ' ' {
			end, kept = i+1, 0
		}
	}
	return min(end+around, len(lines))
}

// compare returns the lines of both texts. The diff is one of the shortest.
func compare(before, after []string) (all []line) {
	head := 0
	for head < len(before) && head < len(after) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	add := func(mark byte, texts ...string) {
		for _, text := range texts {
			all = append(all, line{mark, text})
		}
	}
	add(' ', before[:head]...)
	a, b := before[head:len(before)-tail], after[head:len(after)-tail]
	if len(a)*len(b) > mostPairs {
		add('-', a...)
		add('+', b...)
		a, b = nil, nil
	}
	common := commonLines(a, b)
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			add(' ', a[i])
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			add('-', a[i])
			i++
		default:
			add('+', b[j])
			j++
		}
	}
	add(' ', before[len(before)-tail:]...)
	return all
}

// commonLines returns for each pair of positions how many lines the rest of a and the rest of b have in common, in order.
func commonLines(a, b []string) [][]int {
	n := make([][]int, len(a)+1)
	for i := range n {
		n[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				n[i][j] = n[i+1][j+1] + 1
			} else {
				n[i][j] = max(n[i+1][j], n[i][j+1])
			}
		}
	}
	return n
}
