package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/sshd"
	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

const (
	maxTerminalConns = 256
	// terminalPatience bounds how long a viewer may take to send its request, and how long it then waits for the workspace.
	terminalPatience = 30 * time.Second
)

// Terminals gives access to the terminals, which the keeper holds, because it outlives the agent's process, or else this process.
type Terminals interface {
	// Dial opens a connection for one viewer, whose first frame is a terminal.Start.
	Dial() (net.Conn, error)
	// Close ends the terminals of this process.
	Close() error
}

// ownHolder holds the terminals in this process.
type ownHolder struct{ *terminal.Holder }

func (h ownHolder) Dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	h.Go(theirs)
	return ours, nil
}

// serveTerminal serves one viewer, and sends it the reason if that fails.
func (d *daemon) serveTerminal(conn net.Conn) {
	if err := d.terminal(conn); err != nil {
		d.log.Warn("cannot open terminal", "peer", conn.RemoteAddr(), "err", err)
		_ = ptywire.WriteJSON(conn, ptywire.Exit, ptywire.End{Code: 127, Reason: err.Error()}) // it may be gone
	}
}

// terminal serves one viewer to its end. It fails if the viewer cannot be connected to its terminal.
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
		return errors.New("the first frame is not a request for a terminal")
	case len(req.Command) > ptywire.MaxCommand:
		return errors.New("the command is too long")
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	timer := time.NewTimer(terminalPatience)
	defer timer.Stop()
	select {
	case <-d.booted:
	case <-timer.C:
		return errors.New("the workspace has not heard from its server yet; try again in a moment")
	}
	var early []byte
	if !req.Early {
		if early, err = d.awaitLogin(conn); err != nil {
			return err
		}
	}
	w, m := d.current()
	held, err := d.holder.Dial()
	if err != nil {
		return fmt.Errorf("reach terminals: %w", err)
	}
	if err := ptywire.WriteJSON(held, ptywire.Open, w.startTerminal(req, m)); err != nil {
		held.Close()
		return fmt.Errorf("ask for terminal: %w", err)
	}
	if _, err := held.Write(early); err != nil {
		held.Close()
		return fmt.Errorf("pass on early input: %w", err)
	}
	defer d.stats.begin(kindTerminal)()
	netio.Pipe(conn, held)
	return nil
}

// startTerminal returns the request for a terminal, with what a new shell starts with.
func (w *workspace) startTerminal(req ptywire.Request, m *agentpb.ManifestResponse) terminal.Start {
	env := w.variables(m)
	env.Set("TERM", "xterm-256color")
	env.Set("COLORTERM", "truecolor")
	dir := w.user.Existing(w.user.Directory(m.GetDirectory(), env))
	s := terminal.Start{Request: req, Path: w.user.Shell, Env: env.List(), Directory: dir}
	if req.Command != "" {
		s.Args = proc.CommandArgs(w.user.Shell, req.Command)
		return s
	}
	s.Args = proc.LoginArgs(w.user.Shell)
	s.Banner = sshd.Banner(w.motd(m, env), w.user.Home, w.log)
	return s
}
