package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// sumsName is the list of checksums, as sha256sum --check reads it.
const sumsName = "SHA256SUMS"

// member is a file of an archive.
type member struct {
	name, path string
	mode       int64
}

// archives packs each program with its license and those of what it contains; the full program also with what a service
// needs.
func (r *release) archives() error {
	programs, err := r.list()
	if err != nil {
		return err
	}
	for _, p := range programs {
		members := []member{
			{"coder", p.path, 0o755}, {"LICENSE", filepath.Join(r.root, "LICENSE"), 0o644},
			{"NOTICES.txt", filepath.Join(r.root, "build", "NOTICES.txt"), 0o644},
		}
		if p.full {
			for _, name := range []string{
				"codermesh.service", "codermesh-provisionerd.service", "account-per-job.conf", "coder-connect@.service",
				"server.env", "provisionerd.env",
			} {
				members = append(members, member{name, filepath.Join(r.root, "packaging", name), 0o644})
			}
		}
		write, ending := r.tarball, ".tar.gz"
		if p.os == "windows" {
			members[0].name = "coder.exe"
			write, ending = r.zip, ".zip"
		}
		if err := r.create(p.name+ending, func(w io.Writer) error { return write(w, p.name, members) }); err != nil {
			return err
		}
	}
	return nil
}

// create writes a file of the release.
func (r *release) create(name string, write func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	defer file.Close() // after a success there is nothing left to close
	if err := write(file); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return file.Close()
}

func (r *release) tarball(w io.Writer, folder string, members []member) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	for _, m := range members {
		err := m.open(func(file io.Reader, size int64) error {
			header := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + m.name, Size: size, Mode: m.mode,
				ModTime: r.time, Format: tar.FormatUSTAR}
			if err := archive.WriteHeader(header); err != nil {
				return err
			}
			_, err := io.Copy(archive, file)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return packed.Close()
}

func (r *release) zip(w io.Writer, folder string, members []member) error {
	archive := zip.NewWriter(w)
	for _, m := range members {
		err := m.open(func(file io.Reader, _ int64) error {
			to, err := archive.CreateHeader(&zip.FileHeader{Name: folder + "/" + m.name, Method: zip.Deflate,
				Modified: r.time})
			if err != nil {
				return err
			}
			_, err = io.Copy(to, file)
			return err
		})
		if err != nil {
			return err
		}
	}
	return archive.Close()
}

func (m member) open(read func(file io.Reader, size int64) error) error {
	file, err := os.Open(m.path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return read(file, info.Size())
}

// checksums lists every file of the release, and signs the list.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out) // sorted by name
	if err != nil {
		return err
	}
	var paths []string
	for _, entry := range entries {
		if entry.Name() != sumsName && entry.Name() != sumsName+signed && !entry.IsDir() {
			paths = append(paths, filepath.Join(r.out, entry.Name()))
		}
	}
	list, err := sums(paths)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, sumsName), list, 0o644); err != nil || !r.signer.signs() {
		return err
	}
	signatures, err := r.signer.sign(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, sumsName+signed), []byte(signatures), 0o644)
}
