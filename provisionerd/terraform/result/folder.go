package result

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// maxState bounds how much of one state file is read, in bytes: PostgreSQL keeps a state as one value.
const maxState = 1<<30 - 64<<20

// errStateTooLarge is the error for a state above maxState.
var errStateTooLarge = errors.New("the state is larger than 960 MiB, which is more than can be stored")

// Folder is a job's working folder, opened before the job begins and held open. The job may have put anything where its
// files are expected.
type Folder struct{ root *os.Root }

// OpenFolder opens a job's folder. The caller closes it. The error is fs.ErrNotExist if there is no folder.
func OpenFolder(dir string) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open job's folder: %w", err)
	}
	return &Folder{root}, nil
}

// Close releases the folder.
func (f *Folder) Close() { f.root.Close() }

// read returns a file's content. It follows no link, reads only regular files, and does not block. It returns
// fs.ErrNotExist if the file does not exist.
func (f *Folder) read(name string) ([]byte, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is not a regular file: %v", name, info.Mode().Type())
	}
	// The job may have replaced the file since: a pipe does not block, and at worst a link leads to another of the
	// job's own files.
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !os.SameFile(info, opened) {
		return nil, fmt.Errorf("read %s: it was replaced meanwhile", name)
	}
	if opened.Size() > maxState {
		return nil, errStateTooLarge
	}
	text, err := io.ReadAll(io.LimitReader(file, maxState+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxState {
		return nil, errStateTooLarge
	}
	return text, nil
}

// States returns the states in the folder; of two equally new ones the better comes last: Terraform writes a state that
// it could not save to errored.tfstate, which holds more than the state file with the same serial. The error names
// unreadable files.
func (f *Folder) States() (found [][]byte, err error) {
	var errs []error
	for _, name := range []string{"terraform.tfstate", "errored.tfstate"} {
		text, err := f.read(name)
		switch {
		case err == nil:
			found = append(found, text)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

// LastWords reads what Terraform printed into a file of its working folder after its daemon's death: the changes that
// ended or began, and the state if Terraform could not write it to a file. It ignores what it cannot read.
func LastWords(dir, name string) (changes []*provisionerpb.Change, dump []byte) {
	f, err := OpenFolder(dir)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	text, err := f.read(name)
	if err != nil {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		e := parseLine(line)
		if change := changeOf(e); change != nil {
			changes = append(changes, change)
		}
		if e.Dump != nil {
			dump = e.Dump
		}
	}
	return changes, dump
}

// StatesIn reads the states of a working folder. Without the folder there are none.
func StatesIn(dir string) ([][]byte, error) {
	f, err := OpenFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.States()
}
