package terraform

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

	"github.com/codermesh/codermesh/v2/internal/archive"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Limits on the content of a template's source archive.
const (
	maxSourceBytes = 100 << 20
	maxSourceFiles = 20_000
)

// extract unpacks a tar into root: regular files and folders, and links that stay inside. It creates links last, and
// only if all of them are allowed, so nothing is written through one. It drops what would change the meaning of a build
// if it came from a template: state files, .terraform folders and files with values of variables, which the server has
// read when the version was created. The caller's limits on size and count are maxSourceBytes and maxSourceFiles.
func extract(root *os.Root, r io.Reader) error {
	tr := tar.NewReader(r)
	var files int
	var names archive.Names
	var links []*tar.Header
	left := int64(maxSourceBytes)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return extractLinks(root, names, links)
		}
		if err != nil {
			return fault.New(fault.Invalid, "the template's source is not a readable tar archive: %w", err)
		}
		name, ok, err := entryName(header.Name)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if files++; files > maxSourceFiles {
			return fault.New(fault.TooLarge, "the template has more than %d files", maxSourceFiles)
		}
		if left -= header.Size; left < 0 {
			return fault.New(fault.TooLarge, "the template is larger than %d MiB when unpacked", maxSourceBytes>>20)
		}
		if header.Typeflag == tar.TypeSymlink {
			header.Name = name
			links = append(links, header)
			err = names.AddLink(name, header.Linkname)
		} else {
			err = names.Add(name)
		}
		if err != nil {
			return notAllowed(err)
		}
		if err := extractEntry(root, name, header, tr); err != nil {
			return err
		}
	}
}

func extractEntry(root *os.Root, name string, header *tar.Header, r io.Reader) error {
	mode := fs.FileMode(0o644)
	if header.FileInfo().Mode()&0o100 != 0 {
		mode = 0o755
	}
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return unusable(name, err)
		}
		return nil
	case tar.TypeReg:
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return unusable(name, err)
		}
		file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		if err != nil {
			return unusable(name, err)
		}
		_, err = io.Copy(file, r)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		return nil
	case tar.TypeXGlobalHeader, tar.TypeSymlink: // links follow at the end
		return nil
	default:
		return fault.New(fault.Invalid, "the template's entry %s is not a file or folder", name)
	}
}

func extractLinks(root *os.Root, names archive.Names, links []*tar.Header) error {
	if err := names.Check(); err != nil {
		return notAllowed(err)
	}
	for _, link := range links {
		if err := root.MkdirAll(path.Dir(link.Name), 0o755); err != nil {
			return unusable(link.Name, err)
		}
		if err := root.Symlink(link.Linkname, link.Name); err != nil {
			return unusable(link.Name, err)
		}
	}
	return nil
}

func notAllowed(err error) error {
	return fault.New(fault.Invalid, "the template's source is not accepted: %w", err)
}

func unusable(name string, err error) error {
	return fault.New(fault.Invalid, "the template's entry %s cannot be unpacked: %w", name, err)
}

// entryName cleans the name of a tar entry. It reports false for entries that are dropped.
func entryName(raw string) (name string, ok bool, err error) {
	name = path.Clean(raw)
	if name == "." {
		return "", false, nil
	}
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) {
		return "", false, fault.New(fault.Invalid, "the template's entry %q lies outside of the template", raw)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".terraform" {
			return "", false, nil
		}
	}
	base := path.Base(name)
	switch {
	case strings.Contains(base, ".tfstate"),
		strings.HasSuffix(base, ".auto.tfvars"), strings.HasSuffix(base, ".auto.tfvars.json"),
		base == "terraform.tfvars.json", base == "errored.tfstate":
		return "", false, nil
	}
	return name, true, nil
}

// copyTree copies the files and folders of a template from the folder from to the empty folder to, except .terraform.
// It calls own with the path of every copy.
func copyTree(from, to string, own func(path string) error, keep func(name string) bool) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return fmt.Errorf("open slot: %w", err)
	}
	defer target.Close()
	return fs.WalkDir(source.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("read source: %w", err)
		case name == ".":
			return nil
		case !keep(name):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			if err := target.Mkdir(name, 0o755); err != nil {
				return fmt.Errorf("copy source: %w", err)
			}
			return own(filepath.Join(to, name))
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := source.Readlink(name)
			if err != nil {
				return fmt.Errorf("copy source: %w", err)
			}
			if err := target.Symlink(link, name); err != nil {
				return fmt.Errorf("copy source: %w", err)
			}
			return nil
		}
		if err := copyFile(source, target, name, entry); err != nil {
			return err
		}
		return own(filepath.Join(to, name))
	})
}

func copyFile(source, target *os.Root, name string, entry fs.DirEntry) error {
	in, err := source.Open(name)
	if err != nil {
		return fmt.Errorf("copy source: %w", err)
	}
	defer in.Close()
	mode := fs.FileMode(0o644)
	if info, err := entry.Info(); err == nil && info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	out, err := target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("copy source: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	return nil
}
