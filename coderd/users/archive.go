package users

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/archive"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// maxEntries bounds the files in an archive.
const maxEntries = 10_000

// checkTar refuses an archive that cannot be unpacked, or that would write outside the folder it is unpacked to.
func checkTar(data []byte) error {
	files := 0
	var names archive.Names
	for entries, n := tar.NewReader(bytes.NewReader(data)), 0; ; n++ {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if files == 0 {
				return fault.New(fault.Invalid, "The archive contains no files.")
			}
			return refused(names.Check())
		}
		if err != nil {
			return fault.New(fault.Invalid, "The archive is not a tar file: %w", err)
		}
		if n >= maxEntries {
			return fault.New(fault.TooLarge, "The archive contains more than %d files.", maxEntries)
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			continue
		case tar.TypeDir, tar.TypeReg:
			if h.Typeflag == tar.TypeReg {
				files++
			}
			err = names.Add(h.Name)
		case tar.TypeSymlink:
			err = names.AddLink(h.Name, h.Linkname)
		default:
			return fault.New(fault.Invalid, "The archive's entry %q is not a file, folder or link.", h.Name)
		}
		if err != nil {
			return refused(err)
		}
		if _, err := io.Copy(io.Discard, entries); err != nil {
			return fault.New(fault.Invalid, "The archive is truncated: %w", err)
		}
	}
}

// refused returns the fault for an archive with forbidden content. It returns nil for nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Invalid, "The archive is refused: %w.", err)
}

// tarOfZip converts an archive, up to the size that may be stored.
func tarOfZip(data []byte) ([]byte, error) {
	zipped, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fault.New(fault.Invalid, "The archive is not a zip file: %w", err)
	}
	if len(zipped.File) > maxEntries {
		return nil, fault.New(fault.TooLarge, "The archive contains more than %d files.", maxEntries)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range zipped.File {
		if err := addZipped(w, f, maxFile-int64(out.Len())); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write tar: %w", err)
	}
	if out.Len() > maxFile {
		return nil, archiveTooLarge()
	}
	return out.Bytes(), nil
}

func addZipped(w *tar.Writer, f *zip.File, left int64) error {
	content, err := f.Open()
	if err != nil {
		return fault.New(fault.Invalid, "The archive's entry %q cannot be read: %w", f.Name, err)
	}
	defer content.Close()
	// The header's size is only a claim: read up to the remaining size plus one byte.
	data, err := io.ReadAll(io.LimitReader(content, max(left, 0)+1))
	if err != nil {
		return fault.New(fault.Invalid, "The archive's entry %q cannot be read: %w", f.Name, err)
	}
	if int64(len(data)) > left {
		return archiveTooLarge()
	}
	info := f.FileInfo()
	target := ""
	if !info.Mode().IsRegular() { // a link's content is its target; a folder has no content
		target, data = string(data), nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fault.New(fault.Invalid, "The archive's entry %q cannot be stored: %w", f.Name, err)
	}
	h.Name, h.Size = f.Name, int64(len(data))
	if err := w.WriteHeader(h); err != nil {
		return fault.New(fault.Invalid, "The archive's entry %q cannot be stored: %w", f.Name, err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write tar: %w", err)
	}
	return nil
}

// zipOfTar converts an archive that was checked when it was stored.
func zipOfTar(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for entries := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if err := w.Close(); err != nil {
				return nil, fmt.Errorf("write zip: %w", err)
			}
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("read tar: %w", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader || path.Clean(h.Name) == "." {
			continue
		}
		zh, err := zip.FileInfoHeader(h.FileInfo())
		if err != nil {
			return nil, fmt.Errorf("write zip: %w", err)
		}
		zh.Name, zh.Method = path.Clean(h.Name), zip.Deflate
		if h.FileInfo().IsDir() {
			zh.Name += "/"
		}
		entry, err := w.CreateHeader(zh)
		if err != nil {
			return nil, fmt.Errorf("write zip: %w", err)
		}
		var content io.Reader = entries
		if h.Typeflag == tar.TypeSymlink {
			content = strings.NewReader(h.Linkname)
		}
		if _, err := io.Copy(entry, content); err != nil {
			return nil, fmt.Errorf("write zip: %w", err)
		}
	}
}
