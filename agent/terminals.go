package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/agent/sshd"
	"github.com/codermesh/codermesh/agent/terminal"
	"github.com/codermesh/codermesh/internal/netio"
	"github.com/codermesh/codermesh/internal/ptywire"
)

const (
	maxTerminalConns = 256
	// terminalPatience is how long a viewer may take to say what it wants, and then waits for the workspace's environment.
	terminalPatience = 30 * time.Second
)

// Terminals has the terminals: the keeper, which outlives the agent's process, or this process itself.
type Terminals interface {
	// Dial connects to it; it is asked with terminal.Start.
	Dial() (net.Conn, error)
	// Close ends what belongs to this process.
	Close() error
}

// ownHolder has the terminals in this process.
type ownHolder struct{ *terminal.Holder }

func (h ownHolder) Dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	h.Go(theirs)
	return ours, nil
}

// serveTerminals lets viewers reach terminals until the listener is closed.
func (d *daemon) serveTerminals() {
	slots := make(chan struct{}, maxTerminalConns)
	for {
		conn, err := d.terminalListener.Accept()
		if err != nil {
			return // closed
		}
		select {
		case slots <- struct{}{}:
		default:
			d.log.Warn("too many viewers of terminals", "peer", conn.RemoteAddr())
			conn.Close()
			continue
		}
		d.wg.Go(func() {
			defer func() { <-slots }()
			defer d.open(conn)()
			if err := d.terminal(conn); err != nil {
				d.log.Warn("open terminal", "peer", conn.RemoteAddr(), "err", err)
				_ = ptywire.WriteJSON(conn, ptywire.Exit, ptywire.End{Code: 127, Reason: err.Error()}) // it may be gone
			}
			conn.Close()
		})
	}
}

// open lets close end a connection that is being served. The caller calls what it returns.
func (d *daemon) open(conn net.Conn) (done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		conn.Close()
	}
	d.viewers[conn] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.viewers, conn)
	}
}

// terminal serves one viewer to its end. An error says why it could not look.
func (d *daemon) terminal(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(terminalPatience)); err != nil {
		return err
	}
	kind, payload, err := ptywire.Read(conn)
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	var req ptywire.Request
	switch {
	case kind != ptywire.Open || json.Unmarshal(payload, &req) != nil || req.ID == uuid.Nil:
		return errors.New("the first frame is no request for a terminal")
	case len(req.Command) > ptywire.MaxCommand:
		return errors.New("the command is too long")
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	timer := time.NewTimer(terminalPatience)
	defer timer.Stop()
	select {
	case <-d.ready:
	case <-timer.C:
		return errors.New("the workspace has not heard from its server yet; try again in a moment")
	}
	held, err := d.holder.Dial()
	if err != nil {
		return fmt.Errorf("reach terminals: %w", err)
	}
	if err := ptywire.WriteJSON(held, ptywire.Open, d.startTerminal(req)); err != nil {
		held.Close()
		return fmt.Errorf("ask for terminal: %w", err)
	}
	defer d.stats.begin(kindTerminal)()
	netio.Pipe(conn, held)
	return nil
}

// startTerminal is what a new shell of a terminal starts with.
func (d *daemon) startTerminal(req ptywire.Request) terminal.Start {
	m := d.current()
	env := d.variables(m)
	env.Set("TERM", "xterm-256color")
	env.Set("COLORTERM", "truecolor")
	dir := d.user.Directory(m.GetDirectory(), env)
	for _, fallback := range []string{d.user.Home, "/"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = fallback
	}
	s := terminal.Start{Request: req, Path: d.user.Shell, Env: env.List(), Directory: dir}
	if req.Command != "" {
		s.Args = []string{d.user.Shell, "-c", req.Command}
		return s
	}
	s.Args = []string{"-" + filepath.Base(d.user.Shell)}
	s.Banner = sshd.Banner(d.motd(m, env), d.user.Home, d.log)
	return s
}
