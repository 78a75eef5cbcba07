package database

import "strings"

// Text is text as PostgreSQL takes it: what is not UTF-8, and NUL, become U+FFFD.
func Text(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
