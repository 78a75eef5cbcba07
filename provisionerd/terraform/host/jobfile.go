package host

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// maxJobFile bounds a file that is given to jobs.
const maxJobFile = 1 << 20

// JobFile is a file of the operator, such as a kubeconfig, that every job gets a copy of. Jobs learn neither where it
// lies nor whether others lie beside it.
type JobFile struct {
	// Name is where a job finds the copy: the name of a variable, such as KUBE_CONFIG_PATH, which then holds the copy's
	// path, or a path below the job's HOME, such as .kube/config.
	Name string
	Path string // absolute
}

var (
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// ownVariables match the variables with which this package controls a job's programs.
	ownVariables = lazyregexp.New(`^(PATH|HOME|TMPDIR|USER|LOGNAME|GOGC|CHECKPOINT_DISABLE|(TF|CODER|LD|GIT)_.*)$`)
)

// inHome reports whether the job finds the copy below its HOME.
func (f JobFile) inHome() bool { return !variableName().MatchString(f.Name) }

// check refuses a name that could not work, and a file that cannot be read.
func (f JobFile) check() error {
	switch {
	case f.inHome() && (!filepath.IsLocal(f.Name) || filepath.Clean(f.Name) != f.Name || f.Name == "." ||
		!strings.ContainsAny(f.Name, "/.")):
		return fault.New(fault.Invalid,
			"templates cannot be given a file as %q: name a variable such as KUBE_CONFIG_PATH, or a path below HOME "+
				"such as .kube/config", f.Name)
	case !f.inHome() && ownVariables().MatchString(f.Name):
		return fault.New(fault.Invalid,
			"templates cannot be given a file as %s: provisioners set that variable themselves", f.Name)
	case !filepath.IsAbs(f.Path):
		return fault.New(fault.Invalid, "templates cannot be given %s: it must be an absolute path", f.Path)
	}
	_, err := f.read()
	return err
}

// read returns the file's text. A link is followed: renewed credentials often are links.
func (f JobFile) read() ([]byte, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot read the file for jobs: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "cannot read the file for jobs: %s is not a regular file", f.Path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxJobFile+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot read the file for jobs: %w", err)
	}
	if len(text) > maxJobFile {
		return nil, fault.New(fault.Invalid, "cannot read the file for jobs: %s is larger than %d KiB", f.Path,
			maxJobFile>>10)
	}
	return text, nil
}

// checkJobFiles refuses files that jobs cannot be given.
func checkJobFiles(files []JobFile) error {
	names := map[string]bool{}
	for _, f := range files {
		if err := f.check(); err != nil {
			return err
		}
		if names[f.Name] {
			return fault.New(fault.Invalid, "templates are given two files as %s", f.Name)
		}
		names[f.Name] = true
	}
	return nil
}
