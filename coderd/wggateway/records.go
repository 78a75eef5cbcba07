package wggateway

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

// recordLinger is how long a connection stays open in the log after its last flow has ended: a browser opens dozens in
// a row.
const recordLinger = time.Minute

// recordKey is what one row in the log of connections is about.
type recordKey struct {
	device, agent uuid.UUID
	port          uint16
}

// record is such a row while it is open.
type record struct {
	key  recordKey
	open *audit.Open

	uses int         // flows; Gateway.mu guards it and the timer
	idle *time.Timer // ends the record, while it has no flows
}

// connection describes a device's use of a port, at this server or at a region.
func connection(agent, user uuid.UUID, device string, port uint16, from netip.Addr, region string) audit.Connection {
	what := audit.Connection{
		Type: audit.PortForwarding, Agent: agent, User: user, Target: strconv.Itoa(int(port)), Addr: from,
		UserAgent: "WireGuard (" + device + ")", Region: region,
	}
	if port == meshport.SSH {
		what.Type, what.Target = audit.SSH, ""
	}
	return what
}

// begin returns the record of a device's use of a port, and counts one more.
func (g *Gateway) begin(d gateway.Device, agent uuid.UUID, port uint16) *record {
	key := recordKey{d.ID, agent, port}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.records[key]
	if r == nil {
		r = &record{
			key: key, open: g.opts.Connections.Begin(connection(agent, d.User, d.Name, port, d.Endpoint.Addr(), "")),
		}
		g.records[key] = r
	}
	r.uses++
	if r.idle != nil {
		r.idle.Stop()
		r.idle = nil
	}
	return r
}

// end counts a use of a record as ended. cause is nil if one of its ends closed it.
func (g *Gateway) end(r *record, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.uses--; r.uses > 0 {
		return
	}
	if cause != nil {
		g.close(r, cause.Error())
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(recordLinger, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if r.idle == timer {
			g.close(r, "closed by the device")
		}
	})
	r.idle = timer
}

// close ends a record. Gateway.mu must be held: ending a record does not block.
func (g *Gateway) close(r *record, reason string) {
	delete(g.records, r.key)
	if r.idle != nil {
		r.idle.Stop()
		r.idle = nil
	}
	r.open.End(reason, 0)
}

// endRecords ends what is open in the log when the gateway has stopped.
func (g *Gateway) endRecords() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.records {
		g.close(r, "the server stopped")
	}
}
