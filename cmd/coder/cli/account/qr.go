package account

import (
	"fmt"
	"io"
	"strings"

	"rsc.io/qr"
)

// quietZone is the light border around a QR code, in modules (ISO/IEC 18004).
const quietZone = 4

// writeQR writes a text as a QR code for a terminal. Each character has an upper and a lower module. Both colors are
// set, so that the code is dark on light whatever the terminal's colors are.
func writeQR(w io.Writer, text string) error {
	const colors, plain = "\x1b[38;5;16;48;5;231m", "\x1b[0m"
	code, err := qr.Encode(text, qr.L) // the screen is clean and close: the smallest code is read best
	if err != nil {
		return fmt.Errorf("make QR code: %w", err)
	}
	var b strings.Builder
	for y := -quietZone; y < code.Size+quietZone; y += 2 {
		b.WriteString(colors)
		for x := -quietZone; x < code.Size+quietZone; x++ {
			b.WriteString(halves(code.Black(x, y), code.Black(x, y+1)))
		}
		b.WriteString(plain + "\n")
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// halves returns the character whose upper and lower half are dark as given.
func halves(upper, lower bool) string {
	switch {
	case upper && lower:
		return "█"
	case upper:
		return "▀"
	case lower:
		return "▄"
	}
	return " "
}
