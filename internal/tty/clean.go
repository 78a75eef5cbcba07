package tty

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Clean makes foreign text safe to print: a template, a program's log or a server's message must not move the cursor,
// set the window's title or write to the clipboard. It keeps printable text, tabs and line breaks, and the last version
// of a line that repaints itself with carriage returns.
func Clean(text string) string { return clean(text, false) }

// CleanColor is like Clean, but keeps colors and resets them at the end.
func CleanColor(text string) string { return clean(text, true) }

// cleaner cleans what a command prints.
type cleaner struct{ to io.Writer }

// Cleaning returns a writer that passes each Write through CleanColor: whatever a command prints may hold text of a
// server or a workspace. A Write must hold whole sequences. Line breaks with a carriage return stay, for terminals in
// raw mode.
func Cleaning(w io.Writer) io.Writer { return cleaner{w} }

// Raw returns the writer below Cleaning, and any other writer as it is: for a remote terminal, a file or another
// program's output, which the user asked to get unchanged.
func Raw(w io.Writer) io.Writer {
	if c, ok := w.(cleaner); ok {
		return c.to
	}
	return w
}

func (c cleaner) Write(p []byte) (int, error) {
	text := string(p)
	cleaned := CleanColor(text)
	if strings.Contains(text, "\r\n") {
		cleaned = strings.ReplaceAll(cleaned, "\n", "\r\n")
	}
	if _, err := io.WriteString(c.to, cleaned); err != nil {
		return 0, err
	}
	return len(p), nil
}

const (
	escape = '\x1b'
	reset  = "\x1b[0m"
)

func clean(text string, color bool) string {
	if !unclean(text) {
		return text
	}
	var out []byte
	line, colored := 0, false // where the line begins; whether a color is set
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == escape || r == 0x9b || r == 0x90 || r == 0x9d || r == 0x98 || r == 0x9e || r == 0x9f:
			n := sequence(text)
			if color && sgr(text[:n]) {
				out, colored = append(out, text[:n]...), text[:n] != reset && text[:n] != "\x1b[m"
			}
			text = text[n:]
			continue
		case r == '\r':
			if rest := text[size:]; rest != "" && rest[0] != '\n' {
				out = out[:line]
			}
		case r == utf8.RuneError:
			out = utf8.AppendRune(out, r) // also for invalid UTF-8
		case r == '\n':
			out = append(out, '\n')
			line = len(out)
		case r == '\t' || !control(r):
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	if colored {
		out = append(out, reset...)
	}
	return string(out)
}

func unclean(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text,
		func(r rune) bool { return r != '\t' && r != '\n' && control(r) })
}

// control reports whether a character controls a terminal or the direction of text.
func control(r rune) bool {
	return r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// EscapeJSON returns the JSON text with the characters that Clean removes as escapes.
func EscapeJSON(text string) string {
	foreign := func(r rune) bool { return r >= 0x7f && control(r) } // the others cannot be in it
	if !strings.ContainsFunc(text, foreign) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if foreign(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// sequence returns the length in bytes of the control sequence at the start of text (ECMA-48). A truncated one extends
// at most to the end of its line.
func sequence(text string) int {
	first, n := utf8.DecodeRuneInString(text)
	kind := first
	if first == escape {
		if n == len(text) {
			return n
		}
		kind = rune(text[n])
		if kind >= 0x40 && kind <= 0x5f { // ESC [ is CSI, ESC ] is OSC, …
			n++
			kind += 0x40
		} else { // ESC, intermediates, a final
			for n < len(text) && text[n] >= 0x20 && text[n] <= 0x2f {
				n++
			}
			if n < len(text) && text[n] >= 0x30 && text[n] <= 0x7e {
				n++
			}
			return n
		}
	}
	switch kind {
	case 0x9b: // CSI: parameters, intermediates, a final
		for n < len(text) && text[n] >= 0x20 && text[n] <= 0x3f {
			n++
		}
		if n < len(text) && text[n] >= 0x40 && text[n] <= 0x7e {
			n++
		}
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f: // DCS, SOS, OSC, PM, APC: a string up to its terminator
		for n < len(text) && text[n] != '\n' {
			switch {
			case text[n] == '\a':
				return n + 1
			case strings.HasPrefix(text[n:], "\x1b\\"), strings.HasPrefix(text[n:], "\u009c"):
				return n + 2
			case text[n] == escape:
				return n // another sequence begins
			}
			n++
		}
	}
	return n
}

// sgr reports whether a sequence only sets colors.
func sgr(sequence string) bool {
	body, ok := strings.CutPrefix(sequence, "\x1b[")
	body, final := strings.CutSuffix(body, "m")
	return ok && final && strings.Trim(body, "0123456789;:") == ""
}
