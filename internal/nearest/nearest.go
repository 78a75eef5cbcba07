// Package nearest finds what a misspelled word probably means.
package nearest

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// To returns the name that takes the fewest changes to become word, or "" if none is close. It allows a change for each
// three letters, and two in a word of four, since letters are easily swapped. Upper and lower case are equal.
func To(word string, names []string) string { return Within(word, names, max(1, (len(word)+2)/3)) }

// Within returns the name that takes the fewest changes to become word, or "" if all take more than limit. Upper and
// lower case are equal.
func Within(word string, names []string, limit int) string {
	best := ""
	for _, name := range slices.Sorted(slices.Values(names)) {
		if distance := levenshtein.Distance(strings.ToLower(word), strings.ToLower(name), nil); distance <= limit {
			best, limit = name, distance-1
		}
	}
	return best
}
