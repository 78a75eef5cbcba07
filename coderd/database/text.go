package database

import "strings"

// Text returns text in the form that PostgreSQL accepts: invalid UTF-8 becomes U+FFFD, and NUL is dropped.
func Text(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

// Visible is like Text for text that people read: a NUL becomes U+FFFD instead of being dropped.
func Visible(text string) string {
	return Text(strings.ReplaceAll(text, "\x00", "\uFFFD"))
}
