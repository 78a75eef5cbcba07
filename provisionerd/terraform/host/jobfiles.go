package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// filesDir is the folder of a slot with the copies of Options.Files.
const filesDir = "f"

// files is the folder with the copies of Options.Files. The daemon owns it and the copies: the job can only read them.
func (s *Slot) files() string { return filepath.Join(s.dir, filesDir) }

// jobFileCopy is the name of the copy of Options.Files[i].
func (s *Slot) jobFileCopy(i int) string { return filepath.Join(s.files(), strconv.Itoa(i)) }

// resetFiles makes the empty folder of the copies, and links to them in the job's HOME, which no program of a job has
// used yet.
func (s *Slot) resetFiles() error {
	if len(s.host.opts.Files) == 0 {
		return nil
	}
	if err := os.Mkdir(s.files(), 0o700); err != nil {
		return fmt.Errorf("make folder of files: %w", err)
	}
	for i, f := range s.host.opts.Files {
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
			if err := s.Own(at); err != nil {
				return err
			}
		}
		at = filepath.Join(at, parts[len(parts)-1])
		if err := os.Symlink(s.jobFileCopy(i), at); err != nil {
			return fmt.Errorf("link file in home: %w", err)
		}
		if err := s.Own(at); err != nil {
			return err
		}
	}
	return nil
}

// fillFiles copies the files as they are now, and adds their variables to env. The job's account may read the copies,
// and no other account may. A file that cannot be read fails the job; the error says nothing about where it lies.
func (s *Slot) fillFiles(env map[string]string) error {
	for i, f := range s.host.opts.Files {
		text, err := f.read()
		if err != nil {
			s.host.log.Warn("cannot read a file for jobs", "path", f.Path, "err", err)
			return fault.New(fault.Unavailable,
				"the provisioner cannot read the file that it gives to jobs as %s: its log has the cause", f.Name)
		}
		if err := s.writeFile(s.jobFileCopy(i), text); err != nil {
			return err
		}
		if !f.inHome() {
			env[f.Name] = s.jobFileCopy(i)
		}
	}
	if len(s.host.opts.Files) == 0 || s.uid == 0 {
		return nil
	}
	if err := os.Chown(s.files(), -1, s.uid); err != nil {
		return fmt.Errorf("give files to job: %w", err)
	}
	return os.Chmod(s.files(), 0o750)
}

// writeFile writes a copy that the job may read only.
func (s *Slot) writeFile(name string, text []byte) error {
	if err := RemoveFile(name); err != nil {
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
func (s *Slot) grantFiles(g Grant) Grant {
	if len(s.host.opts.Files) > 0 {
		g.Read = append(slices.Clone(g.Read), s.files())
	}
	return g
}
