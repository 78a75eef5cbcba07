// Package packed has the program cmd/coder-sandbox for this system. `make build` writes it into dist/.
package packed

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

//go:embed all:dist
var dist embed.FS

// Unpack writes the program into a folder, in which others must not write, and returns its path. A program that is
// there already stays if it is the same, and is replaced at one moment otherwise. Without an error and a path, this
// build has none: `go install` makes such builds.
func Unpack(dir string) (string, error) { return unpack(dist, dir) }

func unpack(files fs.FS, dir string) (string, error) {
	packed, err := files.Open("dist/coder-sandbox-" + runtime.GOOS + "-" + runtime.GOARCH + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("unpack sandbox program: %w", err)
	}
	defer packed.Close()
	unzip, err := gzip.NewReader(packed)
	if err != nil {
		return "", fmt.Errorf("unpack sandbox program: %w", err)
	}
	program, err := io.ReadAll(unzip)
	if err != nil {
		return "", fmt.Errorf("unpack sandbox program: %w", err)
	}
	name := filepath.Join(dir, "coder-sandbox")
	info, err := os.Lstat(name)
	if err == nil && info.Mode() == mode {
		if have, err := os.ReadFile(name); err == nil && bytes.Equal(have, program) {
			return name, nil
		}
	}
	file, err := os.CreateTemp(dir, "coder-sandbox-")
	if err != nil {
		return "", fmt.Errorf("unpack sandbox program: %w", err)
	}
	_, err = file.Write(program)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return "", fmt.Errorf("unpack sandbox program: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return name, nil
}

// mode lets all accounts run the program: those of jobs do.
const mode = fs.FileMode(0o755)
