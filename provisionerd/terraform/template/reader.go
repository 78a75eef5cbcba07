package template

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// Limits on reading one file of a template, in bytes.
const (
	maxReadme = 1 << 20
	maxModule = 16 << 20
)

// readFile reads a regular file below root. It follows links as long as they stay there, and rejects devices, pipes and
// folders without waiting for them. A file above limit is a fault, Invalid. Use it, and never a path, to read anything
// in a template's folder, because templates may have written there.
func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, cannotRead(name, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, cannotRead(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "the template's %s is not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, cannotRead(name, err)
	}
	if int64(len(text)) > limit {
		return nil, fault.New(fault.Invalid, "the template's %s is larger than %d KiB", name, limit>>10)
	}
	return text, nil
}

// cannotRead returns a fault if a link leads nowhere or outside, which is the template's mistake, and an internal error
// otherwise.
func cannotRead(name string, err error) error {
	var path *fs.PathError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &path) && path.Err != nil &&
		path.Err.Error() == "path escapes from parent" {
		return fault.New(fault.Invalid, "the template's %s cannot be read: %w", name, err)
	}
	return fmt.Errorf("read template: %w", err)
}

// ReadSource reads a file in Terraform's language.
func ReadSource(root *os.Root, name string) ([]byte, error) {
	return readFile(root, name, syntax.MaxFile)
}
