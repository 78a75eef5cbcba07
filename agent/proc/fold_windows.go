package proc

import "strings"

// fold returns the form in which names of variables are compared: Path and PATH are the same one. Only ASCII letters
// count, so that the length stays.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, name)
}
