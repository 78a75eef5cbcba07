package templates

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/archive"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

const (
	// maxArchive bounds a template's source, in bytes. The server has its own bound; this one prevents reading a whole
	// home folder that the user named by mistake.
	maxArchive = 100 << 20
	maxEntries = 20_000
)

// excluded reports what does not belong in a template's source: version control, Terraform's work folder, states and
// the variables' values that stay on this machine.
func excluded(name string, dir bool) bool {
	base := path.Base(name)
	if dir {
		return base == ".git" || base == ".hg" || base == ".svn" || base == ".terraform"
	}
	return base == ".git" || base == ".DS_Store" || base == "terraform.tfstate" ||
		strings.HasSuffix(base, ".tfstate") || strings.Contains(base, ".tfstate.") ||
		base == "crash.log"
}

// pack writes the folder's files as a tar. The same files produce the same bytes: pack omits times and owners.
func pack(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.Invalid, "cannot read the template's folder: %w", err)
	}
	defer root.Close()
	archive := tar.NewWriter(&limitedWriter{w: w, left: maxArchive})
	found := false
	entries := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if excluded(name, entry.IsDir()) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entries++; entries > maxEntries {
			return fault.New(fault.TooLarge, "the folder %s has more than %d files", dir, maxEntries)
		}
		if ext := path.Ext(name); path.Dir(name) == "." && (ext == ".tf" || strings.HasSuffix(name, ".tf.json")) {
			found = true
		}
		return packEntry(archive, root, name, entry)
	})
	if errors.Is(err, errTooLarge) {
		return exit.Try(fault.New(fault.TooLarge, "the folder %s holds more than %d MiB", dir, maxArchive>>20),
			"coder templates push --directory FOLDER")
	}
	if err != nil {
		return err
	}
	if !found {
		return exit.Try(fault.New(fault.Invalid, "the folder %s holds no Terraform files (*.tf)", dir),
			"coder templates push --directory FOLDER")
	}
	return archive.Close()
}

func packEntry(archive *tar.Writer, root *os.Root, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	header := &tar.Header{Name: name, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if info.Mode()&0o111 != 0 {
		header.Mode = 0o755
	}
	switch {
	case info.IsDir():
		header.Name, header.Typeflag, header.Mode = name+"/", tar.TypeDir, 0o755
		return archive.WriteHeader(header)
	case info.Mode().IsRegular():
	case info.Mode()&fs.ModeSymlink != 0:
		// Pack a link's target in its place, if the target is a file in the folder: os.Root opens nothing else.
		if info, err = root.Stat(name); err != nil {
			return refuseLink(root, name, err)
		}
		if !info.Mode().IsRegular() {
			return nil // a folder is packed at its own place
		}
	default:
		return nil // sockets and devices are not source files
	}
	f, err := root.Open(name)
	if err != nil {
		return fault.New(fault.Invalid, "cannot read the file %s: %w", name, err)
	}
	defer f.Close()
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if _, err := io.Copy(archive, f); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return nil
}

// refuseLink explains a link whose target os.Root does not open. What is outside of the folder is never packed unasked:
// it could be any file of the user's.
func refuseLink(root *os.Root, name string, cause error) error {
	link := filepath.Join(root.Name(), filepath.FromSlash(name))
	target, err := filepath.EvalSymlinks(link)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exit.Try(fault.New(fault.Invalid, "the link %s leads to nothing: %w", name, cause), "rm %s",
			shell.Word(link))
	case err != nil: // its target may exist
		return fault.New(fault.Invalid, "cannot follow the link %s: %w", name, err)
	}
	return exit.Try(fault.New(fault.Invalid, "the link %s leads out of the folder, to %s", name, target),
		"tar -C %s -ch --exclude=.git --exclude=.terraform --exclude='*.tfstate*' . | coder templates push --directory -", shell.Word(root.Name()))
}

var errTooLarge = errors.New("too large")

// limitedWriter rejects bytes beyond left.
type limitedWriter struct {
	w    io.Writer
	left int64
}

func (l *limitedWriter) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, errTooLarge
	}
	return l.w.Write(b)
}

// unpack writes a tar's files into the folder, which it creates if necessary. It writes nothing outside the folder, and
// nothing that decides what programs do there, such as the settings of git.
func unpack(r io.ReadSeeker, dir string) error {
	var names archive.Names
	if err := eachEntry(r, func(_ io.Reader, header *tar.Header) error {
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
			return nil
		}
		if err := names.Add(header.Name); err != nil {
			return unsafeArchive(err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := names.Check(); err != nil {
		return unsafeArchive(err)
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the archive again: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fault.New(fault.Invalid, "cannot create the folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.Invalid, "cannot open the folder: %w", err)
	}
	defer root.Close()
	return eachEntry(r, func(r io.Reader, header *tar.Header) error { return unpackEntry(root, r, header) })
}

func unsafeArchive(err error) error {
	return fault.New(fault.Invalid, "the template's archive is not unpacked: %w", err).
		WithDetail("--tar and --zip print it as it is")
}

// eachEntry calls do for each entry of a tar.
func eachEntry(r io.Reader, do func(r io.Reader, header *tar.Header) error) error {
	entries := tar.NewReader(io.LimitReader(r, maxArchive))
	for range maxEntries {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.New(fault.Invalid, "cannot read the archive: %w", err)
		}
		if err := do(entries, header); err != nil {
			return err
		}
	}
	return fault.New(fault.TooLarge, "the archive has more than %d files", maxEntries)
}

func unpackEntry(root *os.Root, r io.Reader, header *tar.Header) error {
	name := filepath.FromSlash(path.Clean(strings.TrimPrefix(header.Name, "./")))
	if name == "." {
		return nil
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
	default:
		return nil // links and devices are not source files
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", name, err)
	}
	mode := fs.FileMode(0o644)
	if header.Mode&0o100 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return fault.New(fault.Invalid, "cannot write the file %s: %w", name, err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
