package websock

import (
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// pingDelay is the part of the interval by which the accepting side waits longer before it pings. A server has many
// connections, so it leaves the pings to the other sides.
const pingDelay = 8

// AcceptOptions configure the server's side. The zero value is usable.
type AcceptOptions struct {
	ReadLimit    int64         // bytes per message; 0 means DefaultReadLimit
	PingInterval time.Duration // 0 means DefaultPingInterval, negative means no pings
	Subprotocol  string        // empty means none; else the client must offer it
	// OriginHosts lists hosts, in addition to the request's own, whose pages may connect, as patterns of path.Match.
	// Requests without an Origin header do not come from a browser, and are accepted.
	OriginHosts []string
}

// Accept answers an upgrade request. If it fails it has written the response.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (*Conn, error) {
	c := new(Conn)
	ao := &websocket.AcceptOptions{
		OriginPatterns:  opts.OriginHosts,
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  c.pinged, OnPongReceived: c.ponged,
	}
	if opts.Subprotocol != "" {
		ao.Subprotocols = []string{opts.Subprotocol}
	}
	ws, err := websocket.Accept(w, r, ao)
	if err != nil {
		return nil, fault.New(fault.Invalid, "accept websocket: %w", err)
	}
	if opts.Subprotocol != "" && ws.Subprotocol() != opts.Subprotocol {
		ws.Close(websocket.StatusPolicyViolation, "subprotocol "+opts.Subprotocol+" expected")
		return nil, fmt.Errorf("accept websocket: client does not offer subprotocol %q", opts.Subprotocol)
	}
	interval := orDefault(opts.PingInterval)
	c.open(ws, opts.ReadLimit, interval, interval/pingDelay)
	return c, nil
}
