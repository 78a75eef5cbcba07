package agents

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxDepth bounds how many folders an upload makes.
const maxDepth = 64

// target is where a request writes.
type target struct {
	path string
	// parents says that missing folders are made: the path is one of a tree that is uploaded.
	parents bool
}

// targetOf returns the path in a request's query. With the parameter below, path is relative to that folder and cannot
// lead out of it by its names: who sends a tree passes on names that others have chosen.
func targetOf(r *http.Request) (target, error) {
	q := r.URL.Query()
	if !q.Has("below") {
		p, err := fileIn("path", q.Get("path"))
		return target{path: p}, err
	}
	folder, err := pathIn("below", q.Get("below"))
	if err != nil {
		return target{}, err
	}
	p := q.Get("path")
	if wrong := wrongBelow(p); wrong != "" {
		return target{}, fault.New(fault.Invalid, "The path is invalid.").WithField("path", wrong)
	}
	p, err = fileIn("path", path.Join(folder, p))
	return target{path: p, parents: true}, err
}

// wrongBelow says why a path cannot be one below another folder; "" if it can. A backslash separates names on Windows.
func wrongBelow(p string) string {
	names := strings.Split(p, "/")
	switch {
	case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) || strings.ContainsRune(p, '\\'):
		return "must have no control characters and no backslashes"
	case len(names) > maxDepth:
		return fmt.Sprintf("must have at most %d folders", maxDepth-1)
	case slices.ContainsFunc(names, func(n string) bool { return n == "" || n == "." || n == ".." }):
		return "must be relative, and have neither empty names nor . and .."
	}
	return ""
}

// makeParents makes the folders above a target that may lack them.
func (f *fileSession) makeParents(t target) error {
	if !t.parents {
		return nil
	}
	return f.makeAll(path.Dir(t.path))
}

// makeAll makes a folder, and those above it, if it is not there.
func (f *fileSession) makeAll(p string) error {
	err := f.MkdirAll(p)
	if errors.Is(err, syscall.ENOTDIR) {
		return fault.New(fault.Conflict, "There is a file where a folder is needed.").
			WithDetail("Upload to another folder, or under another name.")
	}
	return err
}

// makeFolder makes a folder. One of a tree may be there, and so may be a link to one.
func (f *fileSession) makeFolder(t target) (sdk.AgentFile, error) {
	var err error
	if t.parents {
		err = f.makeAll(t.path)
	} else if err = f.free(t.path); err == nil {
		err = f.Mkdir(t.path)
	}
	if err != nil {
		return sdk.AgentFile{}, err
	}
	info, err := f.Lstat(t.path)
	if err != nil {
		return sdk.AgentFile{}, err
	}
	return described(info), nil
}
