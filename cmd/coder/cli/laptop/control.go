package laptop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// NameServer is the address that answers questions about names. It lies in the mesh, and is no agent's.
var NameServer = tailnet.Addr(uuid.NewSHA1(uuid.Nil, []byte("codermesh connect name server")))

// Setup is what the keeper has set up.
type Setup struct {
	Device     string     `json:"device"`
	Machine    netip.Addr `json:"address"`  // of the machine in the tunnel
	Resolver   string     `json:"resolver"` // systemd-resolved, or the file that names the name server
	NameServer netip.Addr `json:"name_server"`
	Overlaps   []string   `json:"overlaps"` // other routes to addresses of the mesh
	// Original is the file with the resolver's configuration before, whose servers answer for all other names. Empty:
	// the resolver asks us for workspaces only.
	Original string `json:"-"`
}

// Status is what coder connect status shows.
type Status struct {
	Setup
	Server     string      `json:"server"`
	User       string      `json:"user"`
	Since      time.Time   `json:"since"`
	Keeper     int         `json:"keeper_pid"` // the process with root's rights
	Workspaces []Reachable `json:"workspaces"`
}

// Reachable is an agent that programs can reach.
type Reachable struct {
	Agent
	Introduced bool `json:"introduced"` // it has been used, and the mesh knows a path
}

const (
	commandStatus = 's'
	commandDown   = 'd'

	controlTimeout = 5 * time.Second
	maxStatus      = 8 << 20 // bytes
)

// socket returns the path of the control socket.
func socket(dir string) string { return filepath.Join(dir, "socket") }

// answer answers one request, and returns its command, or 0.
func answer(conn net.Conn, status func() Status) byte {
	if conn.SetDeadline(time.Now().Add(controlTimeout)) != nil {
		return 0
	}
	var command [1]byte
	if _, err := io.ReadFull(conn, command[:]); err != nil {
		return 0
	}
	switch command[0] {
	case commandStatus:
		_ = json.NewEncoder(conn).Encode(status()) // the asker has left
	case commandDown:
	default:
		return 0
	}
	return command[0]
}

// ErrDown is the error of Ask and Down if coder connect is not up.
var ErrDown = fault.New(fault.Unavailable, "coder connect is not up")

func request(ctx context.Context, dir string, command byte) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: controlTimeout}).DialContext(ctx, "unix", socket(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrDown
	case errors.Is(err, fs.ErrPermission):
		return nil, fault.New(fault.Forbidden, "coder connect is up for another user of this machine")
	case err != nil:
		return nil, err
	}
	_, err = conn.Write([]byte{command})
	return conn, err
}

// Ask returns the status. dir is the keeper's folder.
func Ask(ctx context.Context, dir string) (st Status, err error) {
	conn, err := request(ctx, dir, commandStatus)
	if err != nil {
		return st, err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(controlTimeout)); err != nil {
		return st, err
	}
	return st, json.NewDecoder(io.LimitReader(conn, maxStatus)).Decode(&st)
}
