package slim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// checksums is the file that lists the SHA-256 of every binary, as sha256sum prints and reads it.
const checksums = "SHA256SUMS"

// The list of the embedded binaries that the makers of a release signed, and the signatures (tools/release). Other
// builds have neither. coder-full-<os>-<arch> is not in the list, because a program cannot contain its own checksum.
const (
	signedList = "SHA256SUMS.release"
	signatures = signedList + ".sig"
)

// ServeHTTP answers GET /bin/{name}: a binary, its checksum as name.sha256, SHA256SUMS, or the signed list. The ETag of
// a binary is the SHA-1 of the unpacked file, as clients compare it with the file they have. The body is packed when
// the client accepts gzip.
func (b *Binaries) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if name == checksums {
		return b.serveSums(w, r, name, b.names())
	}
	if name == signedList || name == signatures {
		return b.serveSigned(w, r, name)
	}
	of, wantsSum := strings.CutSuffix(name, ".sha256")
	bin, err := b.find(r.Context(), of)
	if err != nil {
		return err
	}
	if bin == nil {
		return b.missing(w, name)
	}
	if wantsSum {
		return b.serveSums(w, r, name, []string{of})
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
		packed, err := b.files.Open(bin.packed)
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

// find returns a binary that the server has, or that its mirror has, or nil.
func (b *Binaries) find(ctx context.Context, name string) (*binary, error) {
	if bin := b.each[name]; bin != nil {
		return bin, nil
	}
	return b.mirror.get(ctx, name)
}

// missing answers in plain text, for people who download with curl: programs look at the status only.
func (b *Binaries) missing(w http.ResponseWriter, name string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	if strings.HasSuffix(name, ".asc") {
		_, err := fmt.Fprintf(w, `This server has no binary %q. Plugins of editors verify such signatures with a key that is built into them,
which belongs to another maker's programs. SHA256SUMS.release.sig signs the programs of a release of codermesh.
`, name)
		return err
	}
	_, err := fmt.Fprintf(w, `This server has no binary %q. It has:

  %s

A packaged release of codermesh includes every platform. "make build" includes only the platform that it
runs on; the server's operator can add others with "make build SLIM=all", or name a mirror of a release with
--release-mirror-url.
`, name, strings.Join(b.names(), "\n  "))
	return err
}

// serveSigned serves a file of a signed release.
func (b *Binaries) serveSigned(w http.ResponseWriter, r *http.Request, name string) error {
	text, err := fs.ReadFile(b.files, "dist/"+name)
	if errors.Is(err, fs.ErrNotExist) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, err := io.WriteString(w, "This server was not built as a signed release.\n")
		return err
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	serveText(w, r, name, text)
	return nil
}

func (b *Binaries) serveSums(w http.ResponseWriter, r *http.Request, file string, names []string) error {
	var list bytes.Buffer
	for _, name := range names {
		bin, err := b.find(r.Context(), name)
		if err != nil {
			return err
		}
		if err := b.ready(name, bin); err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", bin.sha256, name)
	}
	serveText(w, r, file, list.Bytes())
	return nil
}

// serveText serves a text that a new version of the server may change.
func serveText(w http.ResponseWriter, r *http.Request, name string, text []byte) {
	etag, _, _ := sum(bytes.NewReader(text)) // reading from memory cannot fail
	header := w.Header()
	header.Set("ETag", `"`+etag.sha1+`"`)
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Type", "text/plain; charset=utf-8")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
}

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
