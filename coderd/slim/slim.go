// Package slim embeds and serves what workspaces and laptops download from the server: the slim binaries, their
// checksums, the list of them that the makers of a release signed, and the scripts that install them.
//
// The build puts the binaries into dist/, packed with gzip, one per platform. A server built without them, with `go
// install`, still serves its own executable for its own platform. It also serves its executable as
// coder-full-<os>-<arch>, for provisioners on other machines.
package slim

import (
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

//go:embed all:dist
var dist embed.FS

// Binaries holds the slim binaries, unpacked once into a folder so that a download is a plain file copy by the kernel.
type Binaries struct {
	files   fs.FS // dist
	dir     string
	each    map[string]*binary // by file name: coder-linux-amd64
	scripts map[string][]byte  // by file name: install.sh
	mirror  *mirrored          // nil without a mirror
}

type binary struct {
	packed string // file in dist, a gzip; empty when path is the server's own executable
	once   sync.Once
	path   string
	sums
	size int64
	err  error
}

// sums are checksums of an unpacked file, in hex.
type sums struct {
	sha1   string // the ETag: clients of this API compare it with the file that they have
	sha256 string // for programs that verify their download
}

// New lists the binaries. They are unpacked into dir when Prepare runs, or one is requested. The install scripts
// download from accessURL.
func New(dir string, accessURL *url.URL) (*Binaries, error) { return open(dist, dir, accessURL) }

func open(files fs.FS, dir string, accessURL *url.URL) (*Binaries, error) {
	b := &Binaries{files: files, dir: dir, each: map[string]*binary{}, scripts: scripts(accessURL)}
	entries, err := fs.ReadDir(files, "dist")
	if err != nil {
		return nil, fmt.Errorf("list embedded binaries: %w", err)
	}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), ".gz")
		if !ok {
			continue
		}
		b.each[name] = &binary{packed: "dist/" + entry.Name()}
	}
	exe, err := executable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	b.each["coder-full-"+platform()] = &binary{path: exe}
	if own := "coder-" + platform(); b.each[own] == nil {
		b.each[own] = &binary{path: exe}
	}
	return b, nil
}

// executable returns a path of the running program. On Linux it stays valid, and leads to the same file, when an
// upgrade replaces the program before the server restarts.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// platform names this platform as in the names of the binaries.
func platform() string {
	arch, suffix := runtime.GOARCH, ""
	if arch == "arm" {
		arch = "armv7"
	}
	if runtime.GOOS == "windows" {
		suffix = ".exe"
	}
	return runtime.GOOS + "-" + arch + suffix
}

// Prepare unpacks every embedded binary and removes those of earlier versions. It blocks for about 0.2 s per binary the
// first time. The server's own executable is read when it is first requested: its checksums would cost as much at every
// start.
func (b *Binaries) Prepare(ctx context.Context) error {
	keep := map[string]bool{}
	var errs []error
	for name, bin := range b.each {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if bin.packed == "" {
			continue
		}
		if err := b.ready(name, bin); err != nil {
			errs = append(errs, err)
		}
		keep[bin.path] = true
	}
	files, _ := filepath.Glob(filepath.Join(b.dir, "coder-*"))
	for _, file := range files {
		if !keep[file] {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}

func (b *Binaries) ready(name string, bin *binary) error {
	bin.once.Do(func() {
		if bin.packed == "" {
			bin.sums, bin.size, bin.err = hashFile(bin.path)
			return
		}
		bin.err = bin.unpack(b.files, b.dir, name)
	})
	if bin.err != nil {
		return fmt.Errorf("unpack %s: %w", name, bin.err)
	}
	return nil
}

// unpack finds or creates dir/name.<identity of the packed form>.<sha1 of the unpacked form>.<its sha256>.
func (bin *binary) unpack(files fs.FS, dir, name string) error {
	packed, err := files.Open(bin.packed)
	if err != nil {
		return err
	}
	defer packed.Close()
	id, err := fingerprint(packed)
	if err != nil {
		return err
	}
	prefix := filepath.Join(dir, name+"."+id+".")
	if found, _ := filepath.Glob(prefix + "*.*"); len(found) == 1 {
		if info, err := os.Stat(found[0]); err == nil {
			bin.path, bin.size = found[0], info.Size()
			bin.sha1, bin.sha256, _ = strings.Cut(strings.TrimPrefix(found[0], prefix), ".")
			return nil
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "unpack-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // after the rename there is nothing left to remove
	defer temp.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	if bin.sums, bin.size, err = sum(io.TeeReader(plain, temp)); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	bin.path = prefix + bin.sha1 + "." + bin.sha256
	return os.Rename(temp.Name(), bin.path)
}

// fingerprint distinguishes packed files by their lengths and gzip's trailer (RFC 1952, section 2.3.1: CRC-32 and
// length of the unpacked data). Hashing the file would read all of it into memory at every start.
func fingerprint(packed fs.File) (string, error) {
	info, err := packed.Stat()
	if err != nil {
		return "", err
	}
	trailer := make([]byte, 8)
	if _, err := packed.(io.ReaderAt).ReadAt(trailer, info.Size()-int64(len(trailer))); err != nil {
		return "", fmt.Errorf("read gzip trailer: %w", err)
	}
	return fmt.Sprintf("%x-%x", trailer, info.Size()), nil
}

func hashFile(path string) (sums, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return sums{}, 0, err
	}
	defer file.Close()
	return sum(file)
}

// sum reads r to its end.
func sum(r io.Reader) (sums, int64, error) {
	one, two := sha1.New(), sha256.New()
	size, err := io.Copy(io.MultiWriter(one, two), r)
	return sums{sha1: hex.EncodeToString(one.Sum(nil)), sha256: hex.EncodeToString(two.Sum(nil))}, size, err
}

func (b *Binaries) names() []string { return slices.Sorted(maps.Keys(b.each)) }
