package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

const (
	maxTerminalConns = 256
	// terminalPatience bounds how long a viewer may take to send its request, and how long it then waits for the
	// workspace.
	terminalPatience = 30 * time.Second
)

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

// awaitLogin blocks a viewer of a new terminal until logins are open, and shows why. It returns what the viewer has
// sent meanwhile, and fails if the viewer leaves.
func (d *daemon) awaitLogin(conn net.Conn) (early []byte, err error) {
	shown := false
	for {
		_, m := d.current()
		changed := d.logins.closed(m.GetIncarnation())
		if changed == nil {
			return early, nil
		}
		if !shown {
			shown = true
			if err := ptywire.Write(conn, ptywire.Output, []byte(waitingText+"\r\n")); err != nil {
				return nil, err
			}
		}
		if early, err = readUntil(conn, early, changed); err != nil {
			return nil, err
		}
	}
}
