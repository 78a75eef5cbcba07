// Package shell writes words of the commands that people copy into a shell. Names come from servers, templates and
// workspaces, which may be hostile: what a word contains must neither be run nor be taken for an option. It knows no
// command.
package shell

import (
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unprintable stands for a text that no word of a command can show as it is: no shell and no program gives it a
// meaning.
const Unprintable = "…"

// maxWord bounds a word, in bytes. Longer texts are not names, and would push the rest of a command out of sight.
const maxWord = 1024

// Word returns a text as one word for the shells of this machine's system. It quotes what a shell would split or
// expand. A text that a program would take for an option, that is too long, that contains line ends, controls or
// characters without a shape, or that no quotes hold, is replaced by Unprintable.
func Word(text string) string {
	if runtime.GOOS == "windows" {
		return windows(text)
	}
	return POSIX(text)
}

// quoted writes what a shell would interpret between single quotes outside of them: the quote, and the backslash, which
// fish interprets.
var quoted = strings.NewReplacer("'", `'\''`, `\`, `'\\'`)

// POSIX is like Word, for the shells of Unix: sh, bash, zsh, fish and others. Servers use it, which do not know who
// will read their texts.
func POSIX(text string) string {
	switch {
	case !printable(text):
		return Unprintable
	case plain(text, "_@%+=:,./-") && text[0] != '=': // zsh replaces =program by its path
		return text
	}
	return "'" + quoted.Replace(text) + "'"
}

// windows writes a word that cmd.exe and PowerShell read alike. Both keep what is between double quotes, but for what
// they expand in it.
func windows(text string) string {
	switch {
	case !printable(text), strings.ContainsAny(text, "\"$%`!“”„"):
		return Unprintable
	case plain(text, `_+=:./\-`):
		return text
	case strings.HasSuffix(text, `\`):
		text += `\` // programs take \" for a quote
	}
	return `"` + text + `"`
}

// printable reports whether a text can be shown as the word that it is.
func printable(text string) bool {
	return len(text) <= maxWord && !strings.HasPrefix(text, "-") && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return r != ' ' && !unicode.IsGraphic(r) || unicode.Is(unicode.Zs, r) && r != ' ' ||
				unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) ||
				unicode.Is(unicode.Variation_Selector, r)
		})
}

// plain reports whether no shell gives the text a meaning: it consists of letters, digits and some signs.
func plain(text, signs string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(signs, r)
	})
}
