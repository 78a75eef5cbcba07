package agents

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// maxEntries bounds a listing, and maxListing what the agent may send for one, in bytes: an entry takes about a
	// hundred.
	maxEntries = 10_000
	maxListing = 4 << 20
	// maxLinks is of how many links a listing says where they lead: each takes two requests, of which askingLinks are
	// open at a time.
	maxLinks    = 256
	askingLinks = 16
	// maxName bounds the names of a listing, in bytes. No common file system has longer ones.
	maxName = 1024
	// maxPath is the longest path that Linux accepts, in bytes.
	maxPath = 4096
	// maxUpload bounds one file. The server passes it on without keeping it; the bound keeps a mistake from filling a
	// workspace's disk.
	maxUpload = 10 << 30
	// maxUnsized bounds the content of a file that does not say how long it is, such as those in /proc.
	maxUnsized = 64 << 20
)

// uploadPrefix begins the name of a file while it is uploaded.
const uploadPrefix = ".upload-"

// pictures are the types of files that browsers show as pictures, and as nothing else: an SVG file could contain a
// script.
var pictures = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".avif": "image/avif", ".bmp": "image/bmp",
}

// fileRoutes registers the routes of a workspace's files. Those who may open a terminal may use them.
func (s *Service) fileRoutes(mux *httpapi.Mux) {
	may := rbac.Needs(rbac.Connect, rbac.Agent)
	logged := audit.Exempt("it is in the connection log, as a terminal is: files of a workspace are not the deployment's")
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/files", may, s.listFiles)
	mux.Handle("DELETE /api/v2/workspaceagents/{workspaceagent}/files", may, s.deleteFile, logged)
	mux.Handle("PATCH /api/v2/workspaceagents/{workspaceagent}/files", may, s.renameFile, logged)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/files/content", may, s.downloadFile)
	mux.Handle("GET /api/v2/workspaceagents/{workspaceagent}/files/archive", may, s.downloadTree)
	mux.Handle("PUT /api/v2/workspaceagents/{workspaceagent}/files/content", may, s.uploadFile, logged)
	mux.Handle("PUT /api/v2/workspaceagents/{workspaceagent}/files/folder", may, s.makeFolder, logged)
}

// pathIn returns a path as SFTP has it. A relative one, and one that begins with ~, is below the folder in which
// sessions begin.
func pathIn(field, p string) (string, error) {
	switch {
	case len(p) > maxPath || strings.ContainsRune(p, 0):
		return "", fault.New(fault.Invalid, "The path is invalid.").
			WithField(field, "must have at most 4096 bytes, none of them zero")
	case p == "" || p == "~":
		return ".", nil
	case strings.HasPrefix(p, "~/"):
		return "./" + p[2:], nil
	}
	return p, nil
}

// fileIn returns a path as pathIn does, if it can be that of a file or folder to change.
func fileIn(field, p string) (string, error) {
	p, err := pathIn(field, p)
	if base := path.Base(p); err == nil && (base == "." || base == ".." || base == "/") {
		return "", fault.New(fault.Invalid, "The path is invalid.").
			WithField(field, "must end with the name of a file or folder")
	}
	return p, err
}

// listFiles answers with the entries of a folder: GET …/files?path=.
func (s *Service) listFiles(w http.ResponseWriter, r *http.Request) error {
	p, err := pathIn("path", r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	var out sdk.AgentFiles
	if err := s.withFiles(r, fileWork{what: "list", do: func(ctx context.Context, f *fileSession) error {
		out, err = f.list(ctx, p)
		return err
	}}); err != nil {
		return err
	}
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, out)
}

// list reads a folder. It stops when the agent has sent more than a listing may have.
func (f *fileSession) list(ctx context.Context, p string) (sdk.AgentFiles, error) {
	out := sdk.AgentFiles{Files: []sdk.AgentFile{}}
	full, err := f.RealPath(p)
	if err != nil {
		return out, err
	}
	if len(full) > maxPath {
		return out, errors.New("the agent's path is too long")
	}
	reading, enough := context.WithCancel(ctx)
	defer enough()
	f.conn.bound(maxListing, enough)
	found, err := f.ReadDirContext(reading, full)
	out.Path, out.Cut = full, reading.Err() != nil && ctx.Err() == nil
	if err != nil && !out.Cut {
		return out, err
	}
	for _, info := range found {
		if name := info.Name(); name == "" || name == "." || name == "/" || len(name) > maxName {
			continue
		}
		if out.Cut = out.Cut || len(out.Files) == maxEntries; len(out.Files) < maxEntries {
			out.Files = append(out.Files, described(info))
		}
	}
	slices.SortFunc(out.Files, func(a, b sdk.AgentFile) int { return cmp.Compare(a.Name, b.Name) })
	if !out.Cut {
		f.conn.bound(maxListing, func() { f.conn.Close() })
		f.follow(full, out.Files)
	}
	return out, nil
}

// described returns what a listing says of an entry.
func described(info fs.FileInfo) sdk.AgentFile {
	return sdk.AgentFile{
		Name: info.Name(), Kind: kindOf(info), Size: max(info.Size(), 0), Mode: info.Mode().String(),
		ModifiedAt: info.ModTime().UTC(),
	}
}

func kindOf(info fs.FileInfo) sdk.AgentFileKind {
	switch info.Mode().Type() {
	case 0:
		return sdk.AgentFileRegular
	case fs.ModeDir:
		return sdk.AgentFileFolder
	case fs.ModeSymlink:
		return sdk.AgentFileLink
	}
	return sdk.AgentFileOther
}

// follow notes where the first links lead. It leaves out those that lead nowhere, or where the account may not look.
func (f *fileSession) follow(folder string, files []sdk.AgentFile) {
	var asking sync.WaitGroup
	defer asking.Wait()
	slots := make(chan struct{}, askingLinks)
	links := 0
	for i := range files {
		if files[i].Kind != sdk.AgentFileLink {
			continue
		}
		if links++; links > maxLinks {
			return
		}
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			link := path.Join(folder, files[i].Name)
			target, err := f.ReadLink(link)
			if err != nil || len(target) > maxPath {
				return
			}
			files[i].LinkTarget = target
			if info, err := f.Stat(link); err == nil {
				files[i].LinkKind, files[i].Size = kindOf(info), max(info.Size(), 0)
			}
		})
	}
}

// downloadFile answers with the content of a file, or its first bytes: GET …/files/content?path=&limit=. Browsers
// store it and never show it as a page: it has the dashboard's origin.
func (s *Service) downloadFile(w http.ResponseWriter, r *http.Request) error {
	p, err := fileIn("path", r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	limit := int64(math.MaxInt64)
	if text := r.URL.Query().Get("limit"); text != "" {
		if limit, err = strconv.ParseInt(text, 10, 64); err != nil || limit < 0 {
			return fault.New(fault.Invalid, "The query parameter limit cannot be %q.", text).
				WithField("limit", "must be a number of bytes")
		}
	}
	begun := false
	err = s.withFiles(r, fileWork{what: "download", transfer: true, do: func(_ context.Context, f *fileSession) error {
		file, size, err := f.open(p)
		if err != nil {
			return err
		}
		defer file.Close()
		h := w.Header()
		h.Set("Content-Type", cmp.Or(pictures[strings.ToLower(path.Ext(p))], "application/octet-stream"))
		name := mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(p)})
		h.Set("Content-Disposition", cmp.Or(name, "attachment"))
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		httpapi.NoStore(h)
		length := min(size, limit)
		if size > 0 || limit == 0 {
			h.Set("Content-Length", strconv.FormatInt(length, 10))
		} else {
			length = min(maxUnsized, limit)
		}
		if begun = true; r.Method == http.MethodHead || length == 0 {
			w.WriteHeader(http.StatusOK)
			return nil
		}
		control := http.NewResponseController(w)
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the next requests have their own
		to := &download{w: w, left: length, moved: func() {
			f.moving()
			_ = control.SetWriteDeadline(time.Now().Add(stallAfter)) // fails if there is no connection to bound
		}}
		_, err = file.WriteTo(to)
		switch {
		case errors.Is(err, errEnough) && (size > 0 || limit <= maxUnsized):
			return nil
		case err == nil && size > 0 && to.left > 0:
			return errors.New("the file became shorter meanwhile")
		}
		return err
	}})
	if err != nil && begun {
		s.log.DebugContext(r.Context(), "download cut short", "err", err)
		panic(http.ErrAbortHandler) // so that the browser notices
	}
	return err
}

// open opens a file and returns its size, which is 0 if it does not say.
func (f *fileSession) open(p string) (*sftp.File, int64, error) {
	info, err := f.Stat(p) // first: opening a pipe can wait forever
	switch {
	case err != nil:
		return nil, 0, err
	case info.IsDir():
		return nil, 0, fault.New(fault.Conflict, "This is a folder.").
			WithDetail("Download it as an archive, or copy it with: scp -r")
	case !info.Mode().IsRegular() || info.Size() < 0:
		return nil, 0, fault.New(fault.Conflict, "This is not a regular file, so it has no content to read.")
	}
	file, err := f.Open(p)
	return file, info.Size(), err
}

// errEnough ends a download when as much was written as was announced.
var errEnough = errors.New("the file is longer than it was")

// download writes to a browser what it was told to expect.
type download struct {
	w     io.Writer
	left  int64
	moved func()
}

func (d *download) Write(p []byte) (int, error) {
	d.moved()
	n, err := d.w.Write(p[:min(int64(len(p)), d.left)])
	if d.left -= int64(n); err == nil && d.left == 0 {
		err = errEnough
	}
	return n, err
}

// uploadFile writes the body to a file: PUT …/files/content?path=&below=&overwrite=. The file appears when it is
// complete.
func (s *Service) uploadFile(w http.ResponseWriter, r *http.Request) error {
	to, err := targetOf(r)
	if err != nil {
		return err
	}
	overwrite, err := httpapi.QueryBool(r, "overwrite")
	if err != nil {
		return err
	}
	if r.ContentLength > maxUpload {
		return fault.New(fault.TooLarge, "The file is larger than %d GiB.", maxUpload>>30).
			WithDetail("Copy it with scp, which has no limit.")
	}
	httpapi.AllowTransfer(r, stallAfter)
	body := http.MaxBytesReader(w, r.Body, maxUpload)
	var out sdk.AgentFile
	write := func(ctx context.Context, f *fileSession) error {
		control := http.NewResponseController(w)
		defer context.AfterFunc(ctx, func() { _ = control.SetReadDeadline(time.Now()) })() // so that no read waits
		if err := f.makeParents(to); err != nil {
			return err
		}
		out, err = f.upload(to.path, &upload{ctx.Err, body, f.moving}, overwrite)
		return err
	}
	if err := s.withFiles(r, fileWork{what: "upload", transfer: true, cleanUp: cleanUp, do: write}); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// upload is the body of a request, until ended returns an error.
type upload struct {
	ended  func() error
	body   io.Reader
	moving func()
}

func (u *upload) Read(p []byte) (int, error) {
	if err := u.ended(); err != nil {
		return 0, err
	}
	n, err := u.body.Read(p)
	if n > 0 {
		u.moving()
	}
	return n, err
}

// upload writes content to a file beside p, and renames it to p when it is complete.
func (f *fileSession) upload(p string, content io.Reader, overwrite bool) (sdk.AgentFile, error) {
	p, old, err := f.place(p, overwrite)
	if err != nil {
		return sdk.AgentFile{}, err
	}
	temporary := path.Join(path.Dir(p), uploadPrefix+rand.Text())
	file, err := f.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return sdk.AgentFile{}, err
	}
	info, err := f.fill(file, p, old, content, overwrite)
	if err != nil {
		_ = f.Remove(temporary) // fails with the connection; the page says that such a file may remain
		return sdk.AgentFile{}, err
	}
	return described(info), nil
}

// fill writes a new file, and gives it its name and the rights of the file in whose place it comes.
func (f *fileSession) fill(
	file *sftp.File, p string, old fs.FileInfo, content io.Reader, overwrite bool,
) (fs.FileInfo, error) {
	temporary := file.Name()
	var err error
	if old != nil {
		err = f.Chmod(temporary, old.Mode().Perm()) // before the content: it may be secret
	}
	if err == nil {
		_, err = file.ReadFromWithConcurrency(content, 0)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil && !overwrite {
		_, _, err = f.place(p, false) // it may have appeared meanwhile
	}
	if err == nil {
		err = f.PosixRename(temporary, p)
	}
	if err != nil {
		return nil, err
	}
	return f.Lstat(p)
}

// place returns where a file is written, and the file that is there, or nil. Links are followed, so that they remain.
func (f *fileSession) place(p string, overwrite bool) (string, fs.FileInfo, error) {
	for range 16 { // links
		info, err := f.Lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return p, nil, nil
		case err != nil:
			return "", nil, err
		case info.IsDir():
			return "", nil, fault.New(fault.Conflict, "There is a folder with this name.")
		case !overwrite:
			return "", nil, fault.New(fault.Conflict, "There is a file with this name.").
				WithDetail("Replace it, or choose another name.").WithField("overwrite", "must be true to replace it")
		case info.Mode().IsRegular():
			return p, info, nil
		case info.Mode().Type() != fs.ModeSymlink:
			return "", nil, fault.New(fault.Conflict, "There is something with this name that is not a regular file.")
		}
		target, err := f.ReadLink(p)
		if err != nil {
			return "", nil, err
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(p), target)
		}
		p = target
	}
	return "", nil, fault.New(fault.Conflict, "The link leads to too many other links.")
}

// makeFolder creates a folder: PUT …/files/folder?path=&below=.
func (s *Service) makeFolder(w http.ResponseWriter, r *http.Request) error {
	to, err := targetOf(r)
	if err != nil {
		return err
	}
	var out sdk.AgentFile
	if err := s.withFiles(r, fileWork{what: "change", do: func(_ context.Context, f *fileSession) error {
		out, err = f.makeFolder(to)
		return err
	}}); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// free returns an error if there is something at a path.
func (f *fileSession) free(p string) error {
	_, err := f.Lstat(p)
	switch {
	case err == nil:
		return fault.New(fault.Conflict, "There is a file or folder with this name.").WithDetail("Choose another name.")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// renameFile moves a file or folder to another name or folder: PATCH …/files.
func (s *Service) renameFile(w http.ResponseWriter, r *http.Request) error {
	var req sdk.RenameAgentFileRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	from, err := fileIn("path", req.Path)
	if err != nil {
		return err
	}
	to, err := fileIn("new_path", req.NewPath)
	if err != nil {
		return err
	}
	if err := s.withFiles(r, fileWork{what: "change", do: func(_ context.Context, f *fileSession) error {
		if err := f.free(to); err != nil {
			return err
		}
		return f.Rename(from, to)
	}}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// deleteFile deletes a file, a link or an empty folder: DELETE …/files?path=.
func (s *Service) deleteFile(w http.ResponseWriter, r *http.Request) error {
	p, err := fileIn("path", r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	if err := s.withFiles(r, fileWork{what: "change", do: func(_ context.Context, f *fileSession) error {
		info, err := f.Lstat(p)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return f.Remove(p)
		}
		if err := f.RemoveDirectory(p); err != nil {
			return fmt.Errorf("remove folder: %w", err)
		}
		return nil
	}}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
