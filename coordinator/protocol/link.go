package protocol

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// LinkPath is the path of links between servers below a server's replica URL.
const LinkPath = "/api/v2/mesh/link"

// LinkVersion is the version of the protocol between servers that this build speaks; it only grows. MinLinkVersion is
// the oldest version that it still understands. Each side speaks the lower of the two.
//
//	1  2026-11-22  first
//	2  2026-11-23  participants may be region proxies (KindProxy); servers of earlier versions do not learn of them
const (
	LinkVersion    = 2
	MinLinkVersion = 1
)

// LinkVersionProxies is the first version with region proxies.
const LinkVersionProxies = 2

// Limits of links. A message that exceeds them closes the link.
const (
	// MaxLinkMessage is the longest message on a link, in bytes.
	MaxLinkMessage = 64 << 10
	// MaxDetail is the longest detail of a participant, in bytes.
	MaxDetail = 16 << 10
	// MaxProbes is how many probes a server has in progress on a link.
	MaxProbes = 64

	// MaxLinkText is the longest name or session of a participant, and the longest reason of a revocation, in bytes.
	MaxLinkText = 1024
	// MaxLinkDelay is the longest delay of a LinkPunch.
	MaxLinkDelay = 10 * time.Second

	maxLinkRTT = 10 * time.Minute // of a participant
)

// LinkHello is the first message of both servers on a link.
type LinkHello struct {
	Version int `json:"version"`
}

// Present announces a participant that is, or was last, connected to the sender, with everything that other servers
// need to know.
type Present struct {
	ID      uuid.UUID         `json:"id"`
	Kind    Kind              `json:"kind"`
	Name    string            `json:"name,omitempty"`
	Subject uuid.UUID         `json:"subject,omitzero"`
	Session string            `json:"session,omitempty"`
	Addr    netip.Addr        `json:"addr,omitzero"`
	Detail  string            `json:"detail,omitempty"`
	Key     tailnet.PublicKey `json:"key"`
	// Stamp orders the participant's connections: the highest one of all servers owns it. It is the time of the
	// connection in microseconds since 1970, or one more than the highest stamp that the server knew.
	Stamp   int64             `json:"stamp"`
	Lost    bool              `json:"lost,omitempty"` // its connection ended without a bye
	Version int               `json:"version"`        // of the protocol that it speaks
	RTT     int64             `json:"rtt,omitempty"`  // between the participant and its server, in microseconds; 0 while unknown
	Since   time.Time         `json:"since"`          // of the connection
	Node    *tailnet.NodeInfo `json:"node,omitempty"` // nil until it has announced a home relay
	Pass    string            `json:"pass,omitempty"` // of a client
}

// LinkGone reports that a participant of the sender is gone. Code and Message are the reason of a revocation, empty for
// others.
type LinkGone struct {
	ID      uuid.UUID  `json:"id"`
	Code    fault.Code `json:"code,omitempty"`
	Message string     `json:"message,omitempty"`
}

// LinkPair names a participant of the sender and one of the receiver.
type LinkPair struct {
	From uuid.UUID `json:"from"`
	To   uuid.UUID `json:"to"`
}

// LinkReady reports that a participant of the sender knows the key of one of the receiver.
type LinkReady struct {
	LinkPair
	Key tailnet.PublicKey `json:"key"` // of To
}

// LinkPunch arranges UDP hole punching: it asks the receiver to send its participant the endpoints of the sender's,
// after a delay. The sender does the same the other way round, so that both nodes receive them at the same time. It is
// called meet on the wire.
type LinkPunch struct {
	LinkPair
	FromMoves uint64 `json:"from_moves"` // the announcements that this is about
	ToMoves   uint64 `json:"to_moves"`
	Delay     int64  `json:"delay,omitempty"` // microseconds
}

// LinkProbe asks whether the process with a key still answers its server.
type LinkProbe struct {
	N   uint64            `json:"n"` // chosen by the asking server
	ID  uuid.UUID         `json:"id"`
	Key tailnet.PublicKey `json:"key"`
}

// LinkProbed answers a probe.
type LinkProbed struct {
	N       uint64 `json:"n"`
	Answers bool   `json:"answers,omitempty"`
}

// Synced follows the sender's participants and wants at the beginning of a link.
type Synced struct{}

// LinkMessage is a message between servers: exactly one of its fields is set.
type LinkMessage struct {
	Hello   *LinkHello  `json:"hello,omitempty"`
	Present *Present    `json:"present,omitempty"`
	Gone    *LinkGone   `json:"gone,omitempty"`
	Want    *LinkPair   `json:"want,omitempty"`
	Unwant  *LinkPair   `json:"unwant,omitempty"`
	Ready   *LinkReady  `json:"ready,omitempty"`
	Punch   *LinkPunch  `json:"meet,omitempty"`
	Probe   *LinkProbe  `json:"probe,omitempty"`
	Probed  *LinkProbed `json:"probed,omitempty"`
	Synced  *Synced     `json:"synced,omitempty"`
}

// DecodeLinkMessage decodes a server's message to another server, and validates everything that does not depend on
// other messages.
func DecodeLinkMessage(data []byte) (LinkMessage, error) {
	var m LinkMessage
	if len(data) > MaxLinkMessage {
		return m, fmt.Errorf("decode link message: %d bytes are too many", len(data))
	}
	if err := decode(data, &m); err != nil {
		return LinkMessage{}, fmt.Errorf("decode link message: %w", err)
	}
	if err := m.check(); err != nil {
		return LinkMessage{}, fmt.Errorf("decode link message: %w", err)
	}
	return m, nil
}

func (m LinkMessage) check() error {
	if count(m.Hello != nil, m.Present != nil, m.Gone != nil, m.Want != nil, m.Unwant != nil, m.Ready != nil,
		m.Punch != nil, m.Probe != nil, m.Probed != nil, m.Synced != nil) != 1 {
		return errNotOne
	}
	switch {
	case m.Hello != nil:
		if m.Hello.Version < 1 {
			return fmt.Errorf("hello: version %d", m.Hello.Version)
		}
	case m.Present != nil:
		return m.Present.Check()
	case m.Gone != nil:
		if len(m.Gone.Message) > MaxLinkText {
			return fmt.Errorf("gone: a reason of %d bytes", len(m.Gone.Message))
		}
		return checkID("gone", m.Gone.ID)
	case m.Want != nil:
		return m.Want.check()
	case m.Unwant != nil:
		return m.Unwant.check()
	case m.Ready != nil:
		return m.Ready.check()
	case m.Punch != nil:
		if m.Punch.Delay < 0 || m.Punch.Delay > MaxLinkDelay.Microseconds() {
			return fmt.Errorf("punch: delay of %d µs", m.Punch.Delay)
		}
		return m.Punch.check()
	case m.Probe != nil:
		return checkID("probe", m.Probe.ID)
	}
	return nil
}

func (p LinkPair) check() error {
	if p.From == uuid.Nil || p.To == uuid.Nil || p.From == p.To {
		return fmt.Errorf("pair: %s and %s", p.From, p.To)
	}
	return nil
}

// Check returns why other servers would refuse the announcement, nil if they do not.
func (p *Present) Check() error {
	switch {
	case p.ID == uuid.Nil || p.Key.IsZero():
		return fmt.Errorf("present: no id or no key")
	case !p.Kind.Valid():
		return fmt.Errorf("present: kind %q", p.Kind)
	case (p.Kind == KindClient || p.Kind == KindProxy) && p.ID != tailnet.ClientID(p.Key):
		return fmt.Errorf("present: a client's id follows from its key")
	case p.Stamp <= 0 || p.Version < MinVersion:
		return fmt.Errorf("present: stamp %d, version %d", p.Stamp, p.Version)
	case p.RTT < 0 || p.RTT > maxLinkRTT.Microseconds():
		return fmt.Errorf("present: round trip of %d µs", p.RTT)
	case len(p.Name) > MaxLinkText || len(p.Session) > MaxLinkText || len(p.Detail) > MaxDetail || len(p.Pass) > MaxPass:
		return fmt.Errorf("present: a text is too long")
	case p.Node == nil:
		return nil
	case p.Node.ID != p.ID || p.Node.Key != p.Key:
		return fmt.Errorf("present: it announces another node")
	}
	return checkNode(*p.Node)
}
