// Package archive lets programs of a workspace fetch archives that the server's operator provides: one line of JSON
// over a private socket, one back, and then the archive's bytes. The agent's token stays with the agent. The package
// knows neither the server nor what an archive has; its caller opens them.
package archive

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/codermesh/codermesh/v2/agent/internal/jsonline"
)

// SocketEnv names the socket to the programs of a workspace.
const SocketEnv = "CODER_ARCHIVE_SOCKET"

const (
	maxLine = 4 << 10 // bytes
	// openTimeout bounds the time until the server answers, and stallAfter a pause in what it sends.
	openTimeout = time.Minute
	stallAfter  = 2 * time.Minute
)

// request is a program's line.
type request struct {
	Name string `json:"name"`
}

// head is the agent's line, before the bytes.
type head struct {
	Size int64 `json:"size"`
	// Error is set if there are no bytes. Refused says that asking again does not help.
	Error   string `json:"error,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

// Refusal is the reason for which the server has no such archive. It would say that again.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Serve answers one request on a connection, which the caller closes, with the archive that open returns and its size.
// An error of open may be a Refusal.
func Serve(
	ctx context.Context, conn net.Conn, open func(ctx context.Context, name string) (io.ReadCloser, int64, error),
) error {
	_ = conn.SetReadDeadline(time.Now().Add(jsonline.Timeout)) // fails only once it is closed
	var r request
	if err := jsonline.Read(conn, maxLine, &r); err != nil {
		return jsonline.Write(conn, head{Error: err.Error(), Refused: true})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	opening := time.AfterFunc(openTimeout, cancel)
	content, size, err := open(ctx, r.Name)
	opening.Stop()
	if err != nil {
		_, refused := errors.AsType[Refusal](err)
		return jsonline.Write(conn, head{Error: err.Error(), Refused: refused})
	}
	defer content.Close()
	if err := jsonline.Write(conn, head{Size: size}); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	stalled := time.AfterFunc(stallAfter, cancel)
	defer stalled.Stop()
	_ = conn.SetWriteDeadline(time.Time{})
	if _, err := io.Copy(moving{conn, stalled}, content); err != nil {
		return fmt.Errorf("send archive: %w", err)
	}
	return nil
}

// moving is a connection that ends when nothing moves.
type moving struct {
	net.Conn
	stalled *time.Timer
}

func (m moving) Write(p []byte) (int, error) {
	m.stalled.Reset(stallAfter)
	return m.Conn.Write(p)
}

// Fetch asks the agent behind the socket at path for an archive. It returns a reader of exactly size bytes, which the
// caller closes: a connection that ends early is io.ErrUnexpectedEOF. The error is a Refusal if it would be the same
// again. Reading ends with ctx.
func Fetch(ctx context.Context, path, name string) (content io.ReadCloser, size int64, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, 0, fmt.Errorf("ask the workspace's agent: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	end := func() error {
		stop()
		return conn.Close()
	}
	r, h, err := ask(conn, name)
	if err == nil && h.Error == "" && h.Size >= 0 {
		return &body{r: r, left: h.Size, end: end}, h.Size, nil
	}
	_ = end() // the reason is known
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case err != nil:
		return nil, 0, fmt.Errorf("ask the workspace's agent: %w", err)
	case h.Refused:
		return nil, 0, Refusal(h.Error)
	}
	return nil, 0, errors.New(h.Error)
}

// ask sends a request and reads the line that answers it.
func ask(conn net.Conn, name string) (*bufio.Reader, head, error) {
	var h head
	if err := jsonline.Write(conn, request{name}); err != nil {
		return nil, h, err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	r := bufio.NewReaderSize(conn, maxLine)
	line, err := r.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	return r, h, err
}

// body reads what follows the agent's line.
type body struct {
	r    io.Reader
	left int64
	end  func() error
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); errors.Is(err, io.EOF) && b.left > 0 {
		err = io.ErrUnexpectedEOF
	} else if b.left == 0 {
		err = nil
	}
	return n, err
}

func (b *body) Close() error { return b.end() }
