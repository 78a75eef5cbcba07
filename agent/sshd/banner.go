package sshd

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
)

// maxBanner is how many bytes of a message of the day the server shows.
const maxBanner = 64 << 10

// Banner returns the message of the day from a file, with a terminal's line ends. It returns nil if there is no file,
// or home has .hushlogin.
func Banner(file, home string, log *slog.Logger) []byte {
	if file == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(home, ".hushlogin")); err == nil {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			log.Warn("cannot read motd", "err", err)
		}
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBanner))
	if err != nil {
		log.Warn("cannot read motd", "err", err)
		return nil
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
}
