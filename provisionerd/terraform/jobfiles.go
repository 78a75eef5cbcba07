package terraform

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// filesDir is the folder of a slot with the copies of Options.Files.
const filesDir = "f"

// maxJobFile bounds a file that is given to jobs.
const maxJobFile = 1 << 20

// JobFile is a file of the operator, such as a kubeconfig, that every job gets a copy of. Jobs learn neither where it lies nor whether others
// lie beside it.
type JobFile struct {
	// Name is where a job finds the copy: the name of a variable, such as KUBE_CONFIG_PATH, which then holds the copy's path, or a path below
	// the job's HOME, such as .kube/config.
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
	case f.inHome() && (!filepath.IsLocal(f.Name) || filepath.Clean(f.Name) != f.Name || f.Name == "." || !strings.ContainsAny(f.Name, "/.")):
		return fault.New(fault.Invalid, "templates cannot be given a file as %q: name a variable such as KUBE_CONFIG_PATH, or a path below HOME such as .kube/config", f.Name)
	case !f.inHome() && ownVariables().MatchString(f.Name):
		return fault.New(fault.Invalid, "templates cannot be given a file as %s: provisioners set that variable themselves", f.Name)
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
		return nil, fault.New(fault.Invalid, "cannot read the file for jobs: %s is larger than %d KiB", f.Path, maxJobFile>>10)
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

// files is the folder with the copies of Options.Files. The daemon owns it and the copies: the job can only read them.
func (s *slot) files() string { return filepath.Join(s.dir, filesDir) }

// jobFileCopy is the name of the copy of Options.Files[i].
func (s *slot) jobFileCopy(i int) string { return filepath.Join(s.files(), strconv.Itoa(i)) }

// resetFiles makes the empty folder of the copies, and links to them in the job's HOME, which no program of a job has used yet.
func (s *slot) resetFiles() error {
	if len(s.e.opts.Files) == 0 {
		return nil
	}
	if err := os.Mkdir(s.files(), 0o700); err != nil {
		return fmt.Errorf("make folder of files: %w", err)
	}
	for i, f := range s.e.opts.Files {
		if !f.inHome() {
			continue
		}
		at := s.home()
		parts := strings.Split(f.Name, "/")
		for _, part := range parts[:len(parts)-1] {
			at = filepath.Join(at, part)
			if err := os.Mkdir(at, 0o700); err != nil && !os.IsExist(err) {
				return fmt.Errorf("make folder in home: %w", err)
			}
			if err := s.own(at); err != nil {
				return err
			}
		}
		at = filepath.Join(at, parts[len(parts)-1])
		if err := os.Symlink(s.jobFileCopy(i), at); err != nil {
			return fmt.Errorf("link file in home: %w", err)
		}
		if err := s.own(at); err != nil {
			return err
		}
	}
	return nil
}

// fillFiles copies the files as they are now, and adds their variables to env. The job's account may read the copies, and no other account may. A file
// that cannot be read fails the job; the error says nothing about where it lies.
func (s *slot) fillFiles(env map[string]string) error {
	for i, f := range s.e.opts.Files {
		text, err := f.read()
		if err != nil {
			s.e.log.Warn("cannot read a file for jobs", "path", f.Path, "err", err)
			return fault.New(fault.Unavailable, "the provisioner cannot read the file that it gives to jobs as %s: its log has the cause", f.Name)
		}
		if err := s.writeFile(s.jobFileCopy(i), text); err != nil {
			return err
		}
		if !f.inHome() {
			env[f.Name] = s.jobFileCopy(i)
		}
	}
	if len(s.e.opts.Files) == 0 || s.uid == 0 {
		return nil
	}
	if err := os.Chown(s.files(), -1, s.uid); err != nil {
		return fmt.Errorf("give files to job: %w", err)
	}
	return os.Chmod(s.files(), 0o750)
}

// writeFile writes a copy that the job may read only.
func (s *slot) writeFile(name string, text []byte) error {
	if err := removeFile(name); err != nil {
		return err
	}
	if err := os.WriteFile(name, text, 0o400); err != nil {
		return fmt.Errorf("copy file for job: %w", err)
	}
	if s.uid == 0 {
		return nil
	}
	if err := os.Chown(name, -1, s.uid); err != nil {
		return fmt.Errorf("give file to job: %w", err)
	}
	return os.Chmod(name, 0o440)
}

// grantFiles adds the folder of the copies to what the slot's commands may read.
func (s *slot) grantFiles(g grant) grant {
	if len(s.e.opts.Files) > 0 {
		g.read = append(slices.Clone(g.read), s.files())
	}
	return g
}
