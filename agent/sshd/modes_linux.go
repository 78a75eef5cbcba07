package sshd

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Opcodes of RFC 4254, section 8, and 42 of RFC 8160. The speeds (128, 129) mean nothing on a pseudo terminal.
var (
	modeChars = map[byte]int{
		1: unix.VINTR, 2: unix.VQUIT, 3: unix.VERASE, 4: unix.VKILL, 5: unix.VEOF, 6: unix.VEOL, 7: unix.VEOL2,
		8: unix.VSTART,
		9: unix.VSTOP, 10: unix.VSUSP, 12: unix.VREPRINT, 13: unix.VWERASE, 14: unix.VLNEXT, 18: unix.VDISCARD,
	}
	modeInput = map[byte]uint32{
		30: unix.IGNPAR, 31: unix.PARMRK, 32: unix.INPCK, 33: unix.ISTRIP, 34: unix.INLCR, 35: unix.IGNCR,
		36: unix.ICRNL,
		37: unix.IUCLC, 38: unix.IXON, 39: unix.IXANY, 40: unix.IXOFF, 41: unix.IMAXBEL, 42: unix.IUTF8,
	}
	modeLocal = map[byte]uint32{
		50: unix.ISIG, 51: unix.ICANON, 52: unix.XCASE, 53: unix.ECHO, 54: unix.ECHOE, 55: unix.ECHOK, 56: unix.ECHONL,
		57: unix.NOFLSH, 58: unix.TOSTOP, 59: unix.IEXTEN, 60: unix.ECHOCTL, 61: unix.ECHOKE, 62: unix.PENDIN,
	}
	modeOutput = map[byte]uint32{
		70: unix.OPOST, 71: unix.OLCUC, 72: unix.ONLCR, 73: unix.OCRNL, 74: unix.ONOCR, 75: unix.ONLRET,
	}
)

const (
	modeEnd      = 0
	modeReserved = 160 // from here on the length of an argument is unknown
)

// setModes applies the modes of the client's terminal, such as its erase key and UTF-8 input.
func setModes(tty *os.File, modes string) error {
	fd := int(tty.Fd())
	term, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	applyModes(term, []byte(modes))
	return unix.IoctlSetTermios(fd, unix.TCSETS, term)
}

func applyModes(term *unix.Termios, modes []byte) {
	for ; len(modes) >= 5 && modes[0] != modeEnd && modes[0] < modeReserved; modes = modes[5:] {
		op, value := modes[0], binary.BigEndian.Uint32(modes[1:])
		if index, ok := modeChars[op]; ok {
			term.Cc[index] = byte(value)
			if value == 255 {
				term.Cc[index] = 0 // "none": what POSIX calls _POSIX_VDISABLE
			}
			continue
		}
		setFlag(&term.Iflag, modeInput[op], value != 0)
		setFlag(&term.Lflag, modeLocal[op], value != 0)
		setFlag(&term.Oflag, modeOutput[op], value != 0)
	}
}

func setFlag(flags *uint32, flag uint32, on bool) {
	if on {
		*flags |= flag
		return
	}
	*flags &^= flag
}
