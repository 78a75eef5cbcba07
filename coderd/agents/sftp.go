package agents

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/pkg/sftp"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/sshmux"
)

const (
	// maxFileSessions bounds what a user does with files at the same time, on one server: each has a connection and up
	// to 2 MiB of data in flight. A browser sends six requests to a host at a time.
	maxFileSessions = 8
	// stallAfter ends a transfer in which nothing moves. One that moves may take as long as it needs.
	stallAfter = 2 * time.Minute
	// cleanUp is how long an upload that ends early may take to remove what it has written.
	cleanUp = 5 * time.Second
	// maxRefusal is how much of an agent's message users see, in bytes.
	maxRefusal = 300
)

// fileSession is an SFTP session with an agent, for one request.
type fileSession struct {
	*sftp.Client
	conn *metered
	// moving says that the transfer goes on.
	moving func()
}

// Stat, Lstat, Open and OpenFile are those of the client, which returns no attributes or no file, and no error, if an
// agent confirms a question instead of answering it.
func (f *fileSession) Stat(p string) (fs.FileInfo, error)  { return known(f.Client.Stat(p)) }
func (f *fileSession) Lstat(p string) (fs.FileInfo, error) { return known(f.Client.Lstat(p)) }
func (f *fileSession) Open(p string) (*sftp.File, error)   { return opened(f.Client.Open(p)) }
func (f *fileSession) OpenFile(p string, flags int) (*sftp.File, error) {
	return opened(f.Client.OpenFile(p, flags))
}

var errUnanswered = errors.New("the agent confirms what it was asked, and does not answer")

func known(info fs.FileInfo, err error) (fs.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	if info == nil { // Lstat
		return nil, errUnanswered
	}
	if stat, _ := info.Sys().(*sftp.FileStat); stat == nil { // Stat
		return nil, errUnanswered
	}
	return info, nil
}

func opened(file *sftp.File, err error) (*sftp.File, error) {
	if err == nil && file == nil {
		err = errUnanswered
	}
	return file, err
}

// fileWork is what a request does with files.
type fileWork struct {
	what     string        // for the connection log
	transfer bool          // takes as long as it moves; others take askTimeout
	cleanUp  time.Duration // how long the session outlives the request
	do       func(ctx context.Context, f *fileSession) error
}

// withFiles lets work use an SFTP session with the agent in the path of the request. It returns what work does, as a
// fault if the agent is the reason.
func (s *Service) withFiles(r *http.Request, work fileWork) error {
	a, err := s.find(r, rbac.Connect)
	if err != nil {
		return s.refused(r, audit.SSH, "files "+work.what, err)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	user := httpapi.ActorFrom(ctx).UserID
	// Track before admitting: either a revocation finds the session, or the check finds the revocation.
	done, err := s.trackFiles(&openTerminal{agent: a.ID, end: func() { cancel(errRevoked) }}, user)
	if err != nil {
		return err
	}
	defer done()
	if err := s.MayConnect(ctx, httpapi.ActorFrom(ctx), a.ID); err != nil {
		return s.refused(r, audit.SSH, "files "+work.what, err)
	}
	raw, err := s.opts.Mesh.DialAgent(ctx, a.ID, meshport.Session)
	if err != nil {
		return unreachable(err)
	}
	defer raw.Close()
	defer context.AfterFunc(s.life, func() { cancel(errStopping) })()
	defer context.AfterFunc(ctx, func() {
		if work.cleanUp == 0 || errors.Is(context.Cause(ctx), errStalled) {
			raw.Close()
			return
		}
		time.AfterFunc(work.cleanUp, func() { raw.Close() })
	})()
	limit := askTimeout
	if work.transfer {
		limit = stallAfter
	}
	stalled := time.AfterFunc(limit, func() { cancel(errStalled) })
	defer stalled.Stop()

	session := s.opts.Connections.Begin(audit.Connection{
		Type: audit.SSH, Agent: a.ID, User: user, Target: "files " + work.what,
		Addr: httpapi.ClientAddr(ctx), UserAgent: r.UserAgent(),
	})
	conn := &metered{Conn: audit.Counted(raw, session)}
	conn.bound(math.MaxInt64, nil)
	mux := sshmux.Client(conn, sshmux.Options{})
	client, err := sftp.NewClient(mux)
	if err == nil {
		moving := func() {}
		if work.transfer {
			moving = func() { stalled.Reset(limit) }
		}
		err = work.do(ctx, &fileSession{client, conn, moving})
	}
	mux.Close() // first, so that the agent cannot delay the end
	if client != nil {
		client.Close()
	}
	reason := "closed by the client"
	if err != nil {
		reason = "failed"
	}
	session.End(reason, 0)
	return fileFault(ctx, r.Context(), err)
}

// errStalled ends a session in which nothing moves.
var errStalled = fault.New(fault.Unavailable, "The workspace's agent does not answer in time.").
	WithDetail("Try again in a moment.")

// fileFault returns an error from a session as a fault, unless the request has ended.
func fileFault(ctx, request context.Context, err error) error {
	if err == nil || fault.As(err) != nil || request.Err() != nil {
		return err
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errRevoked):
		return fault.New(fault.Conflict, "The workspace stopped meanwhile.")
	case errors.Is(cause, errStopping):
		return fault.New(fault.Unavailable, "The server is stopping.").WithDetail("Try again in a moment.")
	case errors.Is(cause, errStalled):
		return errStalled
	}
	if f := httpapi.BodyFault(err); f != nil {
		return f
	}
	var status *sftp.StatusError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "This file or folder does not exist in the workspace.").
			WithDetail("It may have been moved or deleted meanwhile.")
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Forbidden, "The workspace's account may not do this.").
			WithDetail("Files that belong to other accounts of the workspace may be out of its reach.")
	case errors.As(err, &status):
		return fault.New(fault.Conflict, "The workspace refused: %s", refusal(status))
	}
	return unreachable(fmt.Errorf("use files: %w", err))
}

// refusal returns the message with which an agent refuses a request.
func refusal(status *sftp.StatusError) string {
	text := strings.TrimPrefix(status.Error(), "sftp: ")
	if at := strings.LastIndex(text, " ("); at > 0 {
		text = text[:at]
	}
	text = strings.Trim(text, `"`)
	if len(text) > maxRefusal {
		text = text[:maxRefusal] + "…"
	}
	if text == "" {
		return "it gives no reason"
	}
	return database.Text(text)
}

// trackFiles is track for what a user does with files. It refuses more than maxFileSessions of a user.
func (s *Service) trackFiles(t *openTerminal, user uuid.UUID) (done func(), err error) {
	s.terminals.Lock()
	defer s.terminals.Unlock()
	if s.terminals.files[user] >= maxFileSessions {
		return nil, fault.New(fault.RateLimited, "You have %d transfers of files open.", maxFileSessions).
			WithDetail("Wait until one has ended.")
	}
	s.terminals.files[user]++
	untrack := s.trackLocked(t)
	return func() {
		untrack()
		s.terminals.Lock()
		defer s.terminals.Unlock()
		if s.terminals.files[user]--; s.terminals.files[user] == 0 {
			delete(s.terminals.files, user)
		}
	}, nil
}

// metered is a connection to an agent that bounds what the agent sends.
type metered struct {
	net.Conn
	left atomic.Int64
	over atomic.Pointer[func()]
}

// slack is what an agent may still send after the bound, so that answers that were on their way arrive.
const slack = 1 << 20

// bound lets the agent send n bytes from now on. Then it calls over, which must not block; slack bytes later, the
// connection fails.
func (m *metered) bound(n int64, over func()) {
	m.over.Store(&over)
	m.left.Store(n)
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	left := m.left.Add(-int64(n))
	if left >= 0 {
		return n, err
	}
	if over := *m.over.Load(); over != nil {
		over()
	}
	if left < -slack {
		m.Close()
		return 0, errors.New("the agent sends more than it was asked for")
	}
	return n, err
}
