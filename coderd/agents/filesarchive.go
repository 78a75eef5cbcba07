package agents

import (
	"archive/zip"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// maxTreeEntries bounds the files and folders of a folder that is downloaded, maxTreeListing what the agent may send
	// to list them, and maxTreeBytes their content, both in bytes.
	maxTreeEntries = 50_000
	maxTreeListing = 16 << 20
	maxTreeBytes   = 10 << 30
	// maxLeftOut bounds the list of what an archive lacks.
	maxLeftOut = 1000
)

// treeEntry is a file or folder of a tree, by its path in the workspace and in the archive.
type treeEntry struct {
	path, name string
	fs.FileInfo
}

// tree is a folder that is downloaded.
type tree struct {
	name    string // of its top folder in the archive
	entries []treeEntry
	leftOut []string // what the archive lacks, and why
}

// omit notes that the archive lacks something.
func (t *tree) omit(name, reason string) {
	if len(t.leftOut) < maxLeftOut {
		t.leftOut = append(t.leftOut, strings.ToValidUTF8(name, "�")+": "+reason)
	} else if len(t.leftOut) == maxLeftOut {
		t.leftOut = append(t.leftOut, "and more")
	}
}

// downloadTree answers with a folder as a zip archive: GET …/files/archive?path=. It lists the whole folder first, so
// that what is too large is refused before anything is sent.
func (s *Service) downloadTree(w http.ResponseWriter, r *http.Request) error {
	p, err := pathIn("path", r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	begun := false
	err = s.withFiles(r, fileWork{what: "download", transfer: true, do: func(ctx context.Context, f *fileSession) error {
		t, err := f.walk(ctx, p)
		if err != nil {
			return err
		}
		h := w.Header()
		h.Set("Content-Type", "application/zip")
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": t.name + ".zip"}))
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		httpapi.NoStore(h)
		if begun = true; r.Method == http.MethodHead {
			w.WriteHeader(http.StatusOK)
			return nil
		}
		control := http.NewResponseController(w)
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the next requests have their own
		return f.pack(&flow{w, func() {
			f.moving()
			_ = control.SetWriteDeadline(time.Now().Add(stallAfter)) // fails if there is no connection to bound
		}}, t)
	}})
	if err != nil && begun {
		s.log.DebugContext(r.Context(), "download cut short", "err", err)
		panic(http.ErrAbortHandler) // so that the browser notices
	}
	return err
}

// flow is a writer that says that it moves.
type flow struct {
	io.Writer
	moved func()
}

func (f *flow) Write(p []byte) (int, error) {
	f.moved()
	return f.Writer.Write(p)
}

// inArchive reports whether an archive can have a name. An agent chooses the names, and the archive is unpacked on its
// user's machine: none may lead out of a folder there.
func inArchive(name string) bool {
	return wrongBelow(name) == "" && !strings.ContainsRune(name, '/') && len(name) <= maxName
}

// walk lists a folder and all folders below it. Links are left out: they could lead out of it, here and where the
// archive is unpacked.
func (f *fileSession) walk(ctx context.Context, p string) (*tree, error) {
	top, err := f.RealPath(p)
	if err != nil {
		return nil, err
	}
	reading, enough := context.WithCancel(ctx)
	defer enough()
	f.conn.bound(maxTreeListing, enough)
	t := &tree{name: path.Base(top)}
	if !inArchive(t.name) {
		t.name = "files"
	}
	var size int64
	folders := []treeEntry{{path: top, name: t.name}}
	for len(folders) > 0 {
		folder := folders[len(folders)-1]
		folders = folders[:len(folders)-1]
		f.moving()
		found, err := f.ReadDirContext(reading, folder.path)
		switch {
		case reading.Err() != nil && ctx.Err() == nil:
			return nil, treeTooLarge()
		case err != nil && folder.path != top && refusedFile(err):
			t.omit(folder.name, err.Error())
			continue
		case err != nil:
			return nil, err
		}
		for _, info := range found {
			e := treeEntry{path.Join(folder.path, info.Name()), folder.name + "/" + info.Name(), info}
			switch {
			case !inArchive(info.Name()) || strings.Count(e.name, "/") > maxDepth:
				t.omit(e.name, "an archive cannot have this name")
				continue
			case info.IsDir():
				folders = append(folders, e)
			case !info.Mode().IsRegular():
				t.omit(e.name, "not a regular file")
				continue
			}
			if size += max(info.Size(), 0); size > maxTreeBytes || size < 0 {
				return nil, treeTooLarge()
			}
			t.entries = append(t.entries, e)
		}
		if len(t.entries)+len(folders) > maxTreeEntries {
			return nil, treeTooLarge()
		}
	}
	return t, nil
}

func treeTooLarge() error {
	return fault.New(fault.TooLarge, "The folder is larger than %d files or %d GiB.", maxTreeEntries, maxTreeBytes>>30).
		WithDetail("Copy it with scp -r or rsync, which have no limit.")
}

// refusedFile reports whether an error is about one file, and not the end of the session.
func refusedFile(err error) bool {
	var status *sftp.StatusError
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.As(err, &status)
}

// pack writes a tree as a zip archive. What it lacks is in a file beside the top folder.
func (f *fileSession) pack(to *flow, t *tree) error {
	f.conn.bound(maxTreeBytes+maxTreeListing, func() { f.conn.Close() })
	out := zip.NewWriter(to)
	out.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { // cheap for the server
		return flate.NewWriter(w, flate.BestSpeed)
	})
	for _, e := range t.entries {
		h := &zip.FileHeader{Name: e.name, Modified: e.ModTime(), Method: zip.Deflate}
		h.SetMode(e.Mode() & (fs.ModeDir | fs.ModePerm))
		if e.IsDir() {
			h.Name, h.Method = h.Name+"/", zip.Store
			if _, err := out.CreateHeader(h); err != nil {
				return err
			}
			continue
		}
		if err := f.packFile(out, h, e, t, to.moved); err != nil {
			return err
		}
	}
	if len(t.leftOut) > 0 {
		list, err := out.Create(t.name + ".left-out.txt")
		if err != nil {
			return err
		}
		if _, err := io.WriteString(list, strings.Join(t.leftOut, "\n")+"\n"); err != nil {
			return err
		}
	}
	return out.Close()
}

// packFile adds a file to an archive, or notes why it cannot be read.
func (f *fileSession) packFile(out *zip.Writer, h *zip.FileHeader, e treeEntry, t *tree, moved func()) error {
	file, err := f.Open(e.path)
	if err != nil && refusedFile(err) {
		t.omit(e.name, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	entry, err := out.CreateHeader(h)
	if err != nil || e.Size() <= 0 {
		return err
	}
	to := &download{w: entry, left: e.Size(), moved: moved}
	switch _, err = file.WriteTo(to); {
	case errors.Is(err, errEnough):
		return nil
	case err == nil:
		t.omit(e.name, "became shorter meanwhile")
		return nil
	case refusedFile(err):
		t.omit(e.name, fmt.Sprintf("cut short: %v", err))
		return nil
	}
	return err
}
