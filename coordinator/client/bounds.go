package client

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// What a server can make a participant hold and do. Honest servers stay far below these bounds.
const (
	// maxPeers is how many peers an agent or a provisioner has: people's sessions, region proxies and servers.
	maxPeers = 4096
	// maxUnasked is how many peers a client or a region proxy has beyond those it subscribed to: the servers, and those
	// that it has given up.
	maxUnasked = 256
	// A participant handles a burst of messages at once, and paceRate in each second after that. Others wait in the
	// connection.
	paceBurst = 8192
	paceRate  = 256
)

// bound returns an error if the server introduces more peers than a participant has use for. It ends the connection;
// for a client, whose user can be told, it ends the client, too.
func (c *Client) bound(id uuid.UUID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.peers[id]; known {
		return nil
	}
	most := maxPeers
	switch c.opts.Kind {
	case protocol.KindServer:
		return nil // of the same deployment: it meets everyone
	case protocol.KindClient, protocol.KindProxy:
		most = maxUnasked + len(c.subscriptions)
	}
	switch {
	case len(c.peers) < most:
		return nil
	case c.opts.Kind == protocol.KindClient:
		return fault.New(fault.Invalid, "the server introduced more than %d peers, which no session needs", most)
	}
	return fmt.Errorf("the server introduced more than %d peers", most)
}
