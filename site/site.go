// Package site embeds and serves the dashboard, a single-page application in TypeScript. It knows nothing of the server: the
// browser gets its data from the API.
//
// The build (`make site`) puts the compressed files into dist/. A program built with Go alone serves a page that explains how
// to build them.
package site

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed all:dist
var dist embed.FS

// asset is one file in its encodings, or as it is.
type asset struct {
	brotli, gzip []byte
	plain        []byte // of a file that is compressed already; then the others are nil
	etag         string
	contentType  string
}

// Handler serves the dashboard: its files by name, and its page for the paths that the page's own program knows.
type Handler struct {
	assets map[string]asset // by path without the leading slash
}

// New returns a handler for the embedded dashboard.
func New() (*Handler, error) {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, fmt.Errorf("open embedded dashboard: %w", err)
	}
	return NewFrom(files)
}

// NewFrom is like New for other files. Each must exist with the suffixes .br and .gz, or without one if it is compressed already.
func NewFrom(files fs.FS) (*Handler, error) {
	h := &Handler{assets: map[string]asset{}}
	err := fs.WalkDir(files, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) == ".br" || strings.HasPrefix(entry.Name(), ".") {
			return err
		}
		content, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		name, packed := strings.CutSuffix(file, ".gz")
		a := asset{contentType: contentType(name), gzip: content}
		if !packed {
			a.gzip, a.plain = nil, content
		} else if a.brotli, err = fs.ReadFile(files, name+".br"); err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		a.etag = `"` + hex.EncodeToString(sum[:12]) + `"`
		h.assets[name] = a
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read embedded dashboard: %w", err)
	}
	return h, nil
}

// Built reports whether the program carries the dashboard.
func (h *Handler) Built() bool { _, ok := h.assets[index]; return ok }

const index = "index.html"

// badge is the picture that READMEs on other sites show.
const badge = "open-in-coder.svg"

// contentType does not use the machine's own table: answers would differ from one server to another.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".webp":
		return "image/webp"
	}
	if known := mime.TypeByExtension(path.Ext(name)); known != "" {
		return known
	}
	return "application/octet-stream"
}

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	a, ok := h.assets[name]
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	status := http.StatusOK
	if !ok && !IsPage(r.URL.EscapedPath()) {
		if !read || !wantsPage(r) {
			noSuchPath(w, r)
			return
		}
		status = http.StatusNotFound // the page shows the error, too
	} else if !read {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The dashboard's pages can only be read.", http.StatusMethodNotAllowed)
		return
	}
	switch {
	case ok && strings.HasPrefix(name, "assets/"): // their names change with their content
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	case ok:
		header.Set("Cache-Control", "no-cache")
		if name == badge {
			header.Set("Cross-Origin-Resource-Policy", "cross-origin")
		}
	case strings.HasPrefix(name, "assets/"), strings.HasPrefix(name, "icon/"), strings.HasPrefix(name, "emojis/"):
		// A browser would take a page in their place for a broken script, or cache it as one.
		http.NotFound(w, r)
		return
	case !h.Built():
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, notBuilt) // an error means that the client has disconnected
		return
	default:
		a = h.assets[index]
		header.Set("Cache-Control", "no-cache")
		if matches(terminalRoute, r.URL.Path) {
			allowStyles(header)
		}
	}
	h.write(w, r, status, a)
}

// allowStyles lets a page write style elements and attributes, which xterm.js draws with. It leaves the rest of the server's policy as it
// is.
func allowStyles(header http.Header) {
	const name, strict = "Content-Security-Policy", "style-src 'self'"
	if policy := header.Get(name); policy != "" {
		header.Set(name, strings.Replace(policy, strict, strict+" 'unsafe-inline'", 1))
	}
}

func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, a asset) {
	header := w.Header()
	header.Set("Content-Type", a.contentType)
	header.Add("Vary", "Accept-Encoding")
	body, encoding := a.gzip, "gzip"
	switch accepted := r.Header.Get("Accept-Encoding"); {
	case a.plain != nil:
		body, encoding = a.plain, ""
	case accepts(accepted, "br"):
		body, encoding = a.brotli, "br"
	case !accepts(accepted, "gzip"):
		plain, err := gunzip(a.gzip)
		if err != nil {
			http.Error(w, "This file of the dashboard is damaged.", http.StatusInternalServerError)
			return
		}
		body, encoding = plain, ""
	}
	// Each encoding is a representation of its own.
	if status == http.StatusOK {
		etag := strings.TrimSuffix(a.etag, `"`) + encoding + `"`
		header.Set("ETag", etag)
		if strings.Contains(r.Header.Get("If-None-Match"), etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if encoding != "" {
		header.Set("Content-Encoding", encoding)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // an error means that the client has disconnected
}

// accepts reports whether an Accept-Encoding header allows the coding. A weight of zero forbids it.
func accepts(header, coding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), coding) {
			value, ok := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			q, err := strconv.ParseFloat(value, 64)
			return !ok || err != nil || q > 0
		}
	}
	return false
}

func gunzip(packed []byte) ([]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(zr)
}

const notBuilt = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>codermesh</title>
<h1>This server was built without its dashboard</h1>
<p>The API and the command line work: <code>coder login</code> with this page's address.</p>
<p>To have the dashboard, build the program from its repository on a machine with Node.js 20 or newer: <code>make build</code>.</p>
</html>
`
