package terraform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Where init installs providers, and where a template brings some of its own, below its folder.
const (
	installedProviders = ".terraform/providers"
	vendoredProviders  = "terraform.d/plugins"
)

// settleProviders moves the unpacked providers that a template brings to where init has linked them. Those links name
// the folder in which init ran, which is about to be renamed. Links to elsewhere stay: they lead to a mirror of the
// operator.
func settleProviders(src string) error {
	root, err := os.OpenRoot(src)
	if err != nil {
		return fmt.Errorf("settle providers: %w", err)
	}
	defer root.Close()
	if _, err := root.Lstat(installedProviders); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	whole, err := filepath.EvalSymlinks(src)
	if err != nil {
		return fmt.Errorf("settle providers: %w", err)
	}
	err = fs.WalkDir(root.FS(), installedProviders, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink == 0 {
			return err
		}
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		from, ok := vendored(name, target, src, whole)
		if !ok {
			return nil
		}
		if info, err := root.Lstat(from); err != nil || !info.IsDir() {
			return nil //nolint:nilerr // the job says that the provider is missing
		}
		if err := root.Remove(name); err != nil {
			return err
		}
		return root.Rename(from, name)
	})
	if err != nil {
		return fmt.Errorf("settle providers: %w", err)
	}
	return nil
}

// vendored returns the name of a link's target, if the template brings it. The template's folder is known by several
// names.
func vendored(link, target string, folders ...string) (name string, ok bool) {
	if !filepath.IsAbs(target) {
		name = path.Join(path.Dir(link), filepath.ToSlash(target))
		return name, strings.HasPrefix(name, vendoredProviders+"/")
	}
	for _, folder := range folders {
		if rest, err := filepath.Rel(folder, target); err == nil &&
			strings.HasPrefix(filepath.ToSlash(rest), vendoredProviders+"/") {
			return filepath.ToSlash(rest), true
		}
	}
	return "", false
}
