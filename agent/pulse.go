package agent

import (
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	// heartbeatInterval is the time between two heartbeats, unless the agent may rest.
	heartbeatInterval = 15 * time.Second
	// pulseTick is how often the agent looks whether a heartbeat is due.
	pulseTick = 5 * time.Second
	// fresh is how old the last sign of life on the coordinator connection may be for the agent to rest. While idle,
	// that connection brings one every 15 seconds.
	fresh = 20 * time.Second
	// answerTime is how long the agent waits for the answer to a heartbeat before it gives the connection up.
	answerTime = 25 * time.Second
)

// pulse decides when heartbeats are due. While the coordinator connection shows that the server is alive, and the
// server the same of the agent, they would only keep the mesh between the two awake: the server says for how long it
// needs none. A new coordinator connection ends that time, because the server may have given up the agent in between.
type pulse struct {
	mesh  Mesh
	limit *time.Timer  // runs while a heartbeat waits for an answer
	asked notify.Wake  // a message came that a heartbeat must answer
	rest  atomic.Int64 // nanoseconds for which the server needs no heartbeat, 0 for heartbeats as usual
	open  atomic.Bool  // a heartbeat waits for an answer

	// Used by the sender only.
	nonce   uint64
	sent    time.Time     // when the last heartbeat was sent; zero: one is due
	latency time.Duration // in the last heartbeat
}

// newPulse returns a pulse that calls silent when the server does not answer.
func newPulse(mesh Mesh, silent func()) *pulse {
	p := &pulse{mesh: mesh, asked: notify.NewWake(), limit: time.AfterFunc(answerTime, silent)}
	p.limit.Stop()
	return p
}

// next returns the heartbeat to send now, or nil.
func (p *pulse) next(now time.Time) *agentpb.Heartbeat {
	since, last := p.mesh.ServerLastSeen()
	if since.After(p.sent) {
		p.sent = time.Time{}
	}
	interval := heartbeatInterval
	if now.Sub(last) < fresh && (p.latency != 0 || p.mesh.RelayLatency() == 0) {
		interval = max(interval, time.Duration(p.rest.Load()))
	}
	if now.Sub(p.sent) < interval {
		return nil
	}
	p.nonce++
	p.sent, p.latency = now, p.mesh.RelayLatency()
	if !p.open.Swap(true) {
		p.limit.Reset(answerTime)
	}
	return &agentpb.Heartbeat{Nonce: p.nonce, RelayLatencyUs: p.latency.Microseconds()}
}

// received notes a message of the server.
func (p *pulse) received(m *agentpb.ServerMessage) {
	p.open.Store(false)
	p.limit.Stop()
	if ack := m.GetHeartbeatAck(); ack != nil {
		p.rest.Store(int64(time.Duration(ack.GetRestSeconds()) * time.Second))
	} else {
		p.asked.Poke()
	}
}
