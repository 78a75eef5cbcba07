package tty

import "unicode/utf8"

// key is a key press: a character, or one of the keys below.
type key rune

const (
	keyInterrupt key = -1 - iota // Ctrl-C
	keyEnd                       // Ctrl-D
	keyEnter
	keyErase // the last character
	keyClear // the whole line
	keyUp
	keyDown
	keyPageUp
	keyPageDown
	keyFirst
	keyLast
)

// controls are the keys that send one byte.
var controls = map[byte]key{
	0x03: keyInterrupt, 0x04: keyEnd, '\r': keyEnter, '\n': keyEnter, 0x7f: keyErase, '\b': keyErase, 0x15: keyClear,
	0x10: keyUp, 0x0e: keyDown,
}

// sequences are the keys that send ESC [ or ESC O, by what follows (ECMA-48 and xterm's control sequences).
var sequences = map[string]key{
	"A": keyUp, "B": keyDown, "5~": keyPageUp, "6~": keyPageDown, "H": keyFirst, "1~": keyFirst, "7~": keyFirst, "F": keyLast, "4~": keyLast, "8~": keyLast,
}

// parseKey returns the first key that a terminal in raw mode has sent, 0 for one that is not known, and its length in
// bytes. The length is 0 if input is only the beginning of a key.
func parseKey(input []byte) (k key, size int) {
	if len(input) == 0 {
		return 0, 0
	}
	if input[0] != escape {
		return parseCharacter(input)
	}
	switch {
	case len(input) == 1:
		return 0, 0
	case input[1] != '[' && input[1] != 'O':
		return 0, 1 // the key Esc, or Alt with the next one
	}
	end := 2
	for end < len(input) && input[end] >= 0x20 && input[end] <= 0x3f {
		end++
	}
	switch {
	case end > maxSequence:
		return 0, end
	case end == len(input):
		return 0, 0
	}
	return sequences[string(input[2:end+1])], end + 1
}

// maxSequence bounds the bytes of a key. What is longer is no key.
const maxSequence = 32

// parseCharacter is parseKey for keys that do not begin with ESC.
func parseCharacter(input []byte) (key, int) {
	if k, ok := controls[input[0]]; ok {
		return k, 1
	}
	r, size := utf8.DecodeRune(input)
	switch {
	case r == utf8.RuneError && size == 1:
		if !utf8.FullRune(input) {
			return 0, 0
		}
		return 0, 1
	case control(r):
		return 0, size
	}
	return key(r), size
}
