package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Servers tell each other what agents report about their own connections, which is not stored: the latency to the relay
// and the number of sessions. Each server collects what has changed and publishes it, many agents in one notification.
// From time to time it publishes everything, and the others forget what was not repeated.

const (
	channelUsage = "agents_usage"
	// usageInterval is how long changes are collected.
	usageInterval = 5 * time.Second
	// usageRounds is how many intervals pass until everything is published again. What was not repeated after twice
	// that time is dropped.
	usageRounds = 60
	// usageBatch is how many agents one notification tells of, whatever they report: PostgreSQL limits its length to
	// 8000 bytes.
	usageBatch = 40
	// maxUsage is the most agents that a notification is read with. Earlier servers tell of 50, with shorter reports.
	maxUsage = 50
	// maxBytes bounds what an agent says that its connections have carried, a petabyte: sums of all agents must not
	// overflow.
	maxBytes = 1 << 50
)

// usage is what an agent reports about its connections.
type usage struct {
	Agent   uuid.UUID `json:"a"`
	Latency int64     `json:"l,omitempty"` // microseconds to the home relay, 0 unknown
	Known   bool      `json:"k,omitempty"` // Counts are known
	Counts  [5]uint32 `json:"c,omitzero"`  // ssh, vscode, jetbrains, terminals, port forwards
	Rx      uint64    `json:"r,omitempty"` // bytes into the workspace since the agent's process began
	Tx      uint64    `json:"t,omitempty"`
}

// usageMessage is a notification from one server to the others.
type usageMessage struct {
	Server uuid.UUID `json:"s"`
	Ask    bool      `json:"q,omitempty"` // a server has started, and needs everything
	Agents []usage   `json:"u,omitempty"`
}

func decodeUsage(payload string) (usageMessage, error) {
	var m usageMessage
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		return usageMessage{}, fmt.Errorf("decode usage of agents: %w", err)
	}
	if len(m.Agents) > maxUsage {
		return usageMessage{}, fmt.Errorf("decode usage of agents: %d agents are too many", len(m.Agents))
	}
	for i := range m.Agents {
		u := &m.Agents[i]
		u.Latency, u.Rx, u.Tx = max(u.Latency, 0), min(u.Rx, maxBytes), min(u.Tx, maxBytes)
	}
	return m, nil
}

// usages is what this server knows about agents at other servers, and what it published.
type usages struct {
	mu        sync.Mutex
	elsewhere map[uuid.UUID]foreignUsage
	published map[uuid.UUID]usage // by agent of this server
}

type foreignUsage struct {
	usage
	server uuid.UUID
	at     time.Time
}

// usage returns what the agent last reported on this connection.
func (c *connection) usage() usage {
	u := usage{Agent: c.agent, Latency: c.latency.Load()}
	if st := c.stats.Load(); st != nil {
		u.Known, u.Counts = true, counts(st)
		u.Rx, u.Tx = min(st.GetRxBytes(), maxBytes), min(st.GetTxBytes(), maxBytes)
	}
	return u
}

func counts(st *agentpb.StatsRequest) [5]uint32 {
	return [5]uint32{st.GetSsh(), st.GetVscode(), st.GetJetbrains(), st.GetReconnectingPty(), st.GetPortForward()}
}

// usageOf returns what an agent reported to the server that it is connected to according to the database, if this
// server knows it.
func (s *Service) usageOf(agent uuid.UUID, server *uuid.UUID) (usage, bool) {
	if c := s.connection(agent); c != nil {
		return c.usage(), true
	}
	s.usages.mu.Lock()
	defer s.usages.mu.Unlock()
	f, ok := s.usages.elsewhere[agent]
	return f.usage, ok && server != nil && f.server == *server
}

// Uses returns the sessions of an agent that is connected to the given server, nil if unknown, and the round trip to
// its relay with the relay's name, 0 if unknown.
func (s *Service) Uses(
	agent uuid.UUID, server *uuid.UUID,
) (sessions *sdk.AgentConnections, relay string, latency time.Duration) {
	u, ok := s.usageOf(agent, server)
	if !ok {
		return nil, "", 0
	}
	if n := u.Counts; u.Known {
		sessions = &sdk.AgentConnections{
			SSH: n[0], VSCode: n[1], JetBrains: n[2], ReconnectingPTY: n[3], PortForward: n[4], RxBytes: u.Rx,
			TxBytes: u.Tx,
		}
	}
	return sessions, s.opts.RelayRegion, time.Duration(u.Latency) * time.Microsecond
}

// hearUsage applies another server's notification.
func (s *Service) hearUsage(payload string) {
	m, err := decodeUsage(payload)
	if err != nil { // after a reconnect the payload is empty: the others repeat everything in time
		s.log.Debug("cannot read agents' usage", "err", err)
		return
	}
	if m.Server == s.opts.ServerID {
		return
	}
	s.usages.mu.Lock()
	defer s.usages.mu.Unlock()
	if m.Ask {
		clear(s.usages.published)
	}
	for _, u := range m.Agents {
		s.usages.elsewhere[u.Agent] = foreignUsage{u, m.Server, time.Now()}
	}
}

// shareUsage publishes changes until ctx ends.
func (s *Service) shareUsage(ctx context.Context) {
	tick := time.NewTicker(s.opts.UsageInterval)
	defer tick.Stop()
	s.publishUsage(ctx, usageMessage{Ask: true})
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for agents := range slices.Chunk(s.changedUsage(round%usageRounds == 0), usageBatch) {
			s.publishUsage(ctx, usageMessage{Agents: agents})
		}
	}
}

func (s *Service) publishUsage(ctx context.Context, m usageMessage) {
	m.Server = s.opts.ServerID
	text, err := json.Marshal(m)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		err = s.opts.PubSub.Publish(ctx, channelUsage, string(text))
	}
	if err != nil { // it is published again later
		s.log.DebugContext(ctx, "cannot publish agents' usage", "err", err)
	}
}

// changedUsage returns what is to be published about the agents of this server, and forgets what is old.
func (s *Service) changedUsage(everything bool) (changed []usage) {
	s.conns.Lock()
	all := make([]usage, 0, len(s.conns.byAgent))
	for _, c := range s.conns.byAgent {
		all = append(all, c.usage())
	}
	s.conns.Unlock()
	s.usages.mu.Lock()
	defer s.usages.mu.Unlock()
	if everything {
		clear(s.usages.published)
		for id, f := range s.usages.elsewhere {
			if time.Since(f.at) > 2*usageRounds*s.opts.UsageInterval {
				delete(s.usages.elsewhere, id)
			}
		}
	}
	for _, u := range all {
		if old, ok := s.usages.published[u.Agent]; !ok || u.differs(old) {
			s.usages.published[u.Agent] = u
			changed = append(changed, u)
		}
	}
	return changed
}

// differs reports whether a change is worth telling. Latencies vary all the time.
func (u usage) differs(old usage) bool {
	moved := math.Abs(float64(u.Latency - old.Latency))
	if u.Known != old.Known || u.Counts != old.Counts || u.Rx != old.Rx || u.Tx != old.Tx {
		return true
	}
	return (u.Latency == 0) != (old.Latency == 0) || moved > 1000 && moved > 0.25*float64(old.Latency)
}
