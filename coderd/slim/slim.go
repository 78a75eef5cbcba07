// Package slim embeds and serves the slim binaries that workspaces and laptops download from the server.
//
// The build puts them into dist/, packed with gzip, one per platform. A server built without them (go install) still serves
// its own executable for its own platform.
package slim

import (
	"compress/gzip"
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codermesh/codermesh/internal/fault"
)

//go:embed all:dist
var dist embed.FS

// Binaries holds the slim binaries, unpacked once into a folder so that a download is a plain file copy by the kernel.
type Binaries struct {
	dir  string
	log  *slog.Logger
	each map[string]*binary // by file name: coder-linux-amd64
}

type binary struct {
	packed string // file in dist, a gzip; empty when path is the server's own executable
	once   sync.Once
	path   string
	sha1   string // hex, of the unpacked file
	size   int64
	err    error
}

// New lists the binaries. They are unpacked into dir when Prepare runs, or one is requested.
func New(dir string, log *slog.Logger) (*Binaries, error) {
	b := &Binaries{dir: dir, log: log, each: map[string]*binary{}}
	entries, err := dist.ReadDir("dist")
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
	own := "coder-" + runtime.GOOS + "-" + runtime.GOARCH
	if b.each[own] == nil {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find own executable: %w", err)
		}
		b.each[own] = &binary{path: exe}
	}
	return b, nil
}

// Prepare unpacks every binary and removes those of earlier versions. It blocks for about 0.2 s per binary the first time.
func (b *Binaries) Prepare(ctx context.Context) error {
	keep := map[string]bool{}
	var errs []error
	for name, bin := range b.each {
		if ctx.Err() != nil {
			return ctx.Err()
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
			bin.sha1, bin.size, bin.err = hashFile(bin.path)
			return
		}
		bin.err = bin.unpack(b.dir, name)
	})
	if bin.err != nil {
		return fmt.Errorf("unpack %s: %w", name, bin.err)
	}
	return nil
}

// unpack finds or creates dir/name.<identity of the packed form>.<sha1 of the unpacked form>.
func (bin *binary) unpack(dir, name string) error {
	packed, err := dist.Open(bin.packed)
	if err != nil {
		return err
	}
	defer packed.Close()
	id, err := identity(packed)
	if err != nil {
		return err
	}
	prefix := filepath.Join(dir, name+"."+id+".")
	if found, _ := filepath.Glob(prefix + "*"); len(found) == 1 {
		if info, err := os.Stat(found[0]); err == nil {
			bin.path, bin.sha1, bin.size = found[0], strings.TrimPrefix(found[0], prefix), info.Size()
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
	hash := sha1.New()
	if bin.size, err = io.Copy(io.MultiWriter(temp, hash), plain); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	bin.sha1 = hex.EncodeToString(hash.Sum(nil))
	bin.path = prefix + bin.sha1
	return os.Rename(temp.Name(), bin.path)
}

// identity distinguishes packed files by their lengths and gzip's trailer (RFC 1952, section 2.3.1: CRC-32 and length of the
// unpacked data). Hashing the file would read all of it into memory at every start.
func identity(packed fs.File) (string, error) {
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

func hashFile(path string) (sum string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	hash := sha1.New()
	if size, err = io.Copy(hash, file); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(hash.Sum(nil)), size, nil
}

// ServeHTTP answers GET /bin/{name}: the ETag is the SHA-1 of the unpacked file, as clients compare it with the file they
// have. The body is packed when the client accepts gzip.
func (b *Binaries) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	bin := b.each[name]
	if bin == nil {
		return fault.New(fault.NotFound, "There is no binary %q", name).
			WithDetail("This server has %s. Build it with `make release` to include every platform.", strings.Join(b.names(), ", "))
	}
	if err := b.ready(name, bin); err != nil {
		return err
	}
	header := w.Header()
	header.Set("ETag", `"`+bin.sha1+`"`)
	header.Set("X-Original-Content-Length", strconv.FormatInt(bin.size, 10))
	header.Set("Vary", "Accept-Encoding")
	header.Set("Content-Type", "application/octet-stream")
	if bin.packed != "" && acceptsGzip(r) {
		packed, err := dist.Open(bin.packed)
		if err != nil {
			return fmt.Errorf("open packed binary: %w", err)
		}
		defer packed.Close()
		header.Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, packed.(io.ReadSeeker)) // every file of an embed.FS is an io.ReadSeeker
		return nil
	}
	file, err := os.Open(bin.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Unavailable, "The binary %s was removed from the server's cache folder", name).
			WithDetail("Restart the server to unpack its binaries again.")
	}
	if err != nil {
		return fmt.Errorf("open binary: %w", err)
	}
	defer file.Close()
	http.ServeContent(w, r, "", time.Time{}, file)
	return nil
}

func (b *Binaries) names() []string { return slices.Sorted(maps.Keys(b.each)) }

// acceptsGzip parses Accept-Encoding: gzip counts unless its weight is 0.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(coding, "gzip") {
			weight := strings.TrimPrefix(strings.ReplaceAll(params, " ", ""), "q=")
			value, err := strconv.ParseFloat(weight, 64)
			return err != nil || value > 0
		}
	}
	return false
}
