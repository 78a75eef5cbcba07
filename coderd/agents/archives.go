package agents

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// Archives are files that the operator provides to workspaces, such as an editor for the browser, in a folder of the
// server's machine. They are no rows of the database: they would be the largest part of every backup. Each of several
// servers has the folder with the same files. Nothing compares them: a template names a file with its SHA-256, and the
// workspace refuses another content. So the operator adds a new version under a new name, and removes the old one when
// no template names it.
//
// Every agent that a build admits may read every archive, by its token, and no one without such a token.

const (
	// maxArchive bounds an archive, in bytes. Releases of editors have up to 0.2 GiB.
	maxArchive = 4 << 30
	// maxArchiveReads bounds the archives that an agent reads at the same time, on one server.
	maxArchiveReads = 2
	// archiveTimeout bounds the sending of one.
	archiveTimeout = 30 * time.Minute
)

// archiveName matches the names of archives: one file of the folder, and no hidden one.
var archiveName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`)

// getArchive sends an archive to an agent, or a program with its token: GET …/workspaceagents/me/archives/{archive}.
func (s *Service) getArchive(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.program(r)
	if err != nil {
		return err
	}
	name := r.PathValue("archive")
	done, err := s.trackArchive(agent.ID)
	if err != nil {
		return err
	}
	defer done()
	file, size, err := s.openArchive(r.Context(), name)
	if err != nil {
		return err
	}
	defer file.Close()
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(archiveTimeout)) // fails if there is no connection to bound
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the next requests have their own
	h := w.Header()
	httpapi.NoStore(h)
	h.Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, file)
	s.log.InfoContext(r.Context(), "sent an archive to a workspace", "what", name, "agent", agent.ID, "bytes", size)
	return nil
}

// openArchive opens a file of the operator's folder, and returns its size. Links that lead out of the folder are not
// followed.
func (s *Service) openArchive(ctx context.Context, name string) (*os.File, int64, error) {
	absent := fault.New(fault.NotFound, "This server has no archive with this name for workspaces.").
		WithDetail("Its operator provides archives in the folder of --archives-dir, at each server of the deployment.")
	if s.opts.ArchivesDir == "" || !archiveName().MatchString(name) {
		return nil, 0, absent
	}
	root, err := os.OpenRoot(s.opts.ArchivesDir) // each time, so that the folder can be replaced
	if err != nil {
		return nil, 0, fault.New(fault.Unavailable, "The server cannot open its folder of archives: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(name) // first: opening a pipe can wait forever
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, absent
	case err != nil:
		s.log.WarnContext(ctx, "cannot look up an archive", "what", name, "err", err)
		return nil, 0, absent
	case !info.Mode().IsRegular():
		return nil, 0, absent
	case info.Size() > maxArchive:
		return nil, 0, fault.New(fault.TooLarge, "The archive is larger than %d GiB.", maxArchive>>30).
			WithDetail("The server's operator must provide a smaller one.")
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, 0, fmt.Errorf("open archive: %w", err)
	}
	return file, info.Size(), nil
}

// trackArchive counts a read of an archive. It refuses more than maxArchiveReads of an agent.
func (s *Service) trackArchive(agent uuid.UUID) (done func(), err error) {
	s.terminals.Lock()
	defer s.terminals.Unlock()
	if s.terminals.archives[agent] >= maxArchiveReads {
		return nil, fault.New(fault.RateLimited, "The workspace is fetching %d archives.", maxArchiveReads).
			WithDetail("Wait until one has arrived.")
	}
	s.terminals.archives[agent]++
	return func() {
		s.terminals.Lock()
		defer s.terminals.Unlock()
		if s.terminals.archives[agent]--; s.terminals.archives[agent] == 0 {
			delete(s.terminals.archives, agent)
		}
	}, nil
}
