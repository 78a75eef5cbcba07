package database

import "strings"

// Text is text as PostgreSQL takes it: what is not UTF-8 becomes U+FFFD, and NUL is dropped.
func Text(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}
