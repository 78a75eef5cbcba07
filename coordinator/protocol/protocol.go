package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Path is the path of the coordinator below the server's base URL.
const Path = "/api/v2/mesh/coordinate"

// Version is the protocol version of this build; it only grows. MinVersion is the oldest version that it still
// understands.
//
//	1  2026-11-21  first
//	2  2026-11-22  agents remember a pass per client (pass), and show it to a server that may not know the client (held)
//	3  2026-11-22  servers confirm that a subscription was given up (unsubscribed)
//	4  2026-11-22  a hello may carry the node's announcement and a name; a participant keeps early handshakes of nodes that are
//	               about to be introduced, so the server does not wait for its ready
//	5  2026-11-23  agents know region proxies (KindProxy), and restrict what they may open
const (
	Version    = 5
	MinVersion = 1
)

// The first versions with a feature, as in the list above.
const (
	VersionPasses       = 2
	VersionUnsubscribed = 3
	VersionEarly        = 4
	VersionProxies      = 5
)

// Timeouts of both ends. A connection that exceeds one counts as dead.
const (
	DialTimeout  = 10 * time.Second // from dialing to the first message
	WriteTimeout = 10 * time.Second // for one message
)

// Limits of messages. A message that exceeds them closes the connection.
const (
	// MaxClientMessage is the longest message a server reads, in bytes.
	MaxClientMessage = 16 << 10
	// MaxServerMessage is the longest message a client reads, in bytes: a relay map may be long.
	MaxServerMessage = 1 << 20
	// MaxEndpoints is how many endpoints a node may announce.
	MaxEndpoints = 64
	// MaxHelloSubscriptions is how many subscriptions a hello may carry.
	MaxHelloSubscriptions = 16
	// MaxHelloNode is the longest announcement that a hello may carry, in bytes. A longer one follows the welcome.
	MaxHelloNode = 4 << 10
	// MaxName is the longest name in a hello, in bytes.
	MaxName = 256
	// MaxRestore is how many peers one Restore may name.
	MaxRestore = 16
	// MaxPass is the longest pass, in bytes.
	MaxPass = 512
)

// Kind is what a participant is.
type Kind string

const (
	KindServer      Kind = "server"      // a replica of the coordination server
	KindAgent       Kind = "agent"       // runs in a workspace
	KindProvisioner Kind = "provisioner" // runs build jobs
	KindClient      Kind = "client"      // a person's command line or desktop session, ephemeral
	KindProxy       Kind = "proxy"       // a region proxy, on behalf of visitors of apps
)

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool {
	switch k {
	case KindServer, KindAgent, KindProvisioner, KindClient, KindProxy:
		return true
	}
	return false
}

// MayInitiate holds the rules on who may see whom that apply to every deployment, before the server's Authorizer is
// asked.
func (k Kind) MayInitiate(to Kind) bool {
	switch k {
	case KindServer:
		return true
	case KindAgent, KindProvisioner:
		return to == KindServer
	case KindProxy:
		return to == KindAgent
	case KindClient:
		return to == KindAgent || to == KindServer || to == KindProvisioner // the last for pings: it lets nothing in
	}
	return false
}

// Welcome is the server's first message.
type Welcome struct {
	Version int              `json:"version"` // what both sides speak from here on
	ID      uuid.UUID        `json:"id"`      // the participant's own id
	Relays  tailnet.RelayMap `json:"relays"`
	Servers []uuid.UUID      `json:"servers"` // connected participants of KindServer
	// GraceSeconds is how long to keep a peer that has lost its coordinator connection.
	GraceSeconds int `json:"grace_seconds"`
}

// Grace is GraceSeconds as a duration.
func (w Welcome) Grace() time.Duration { return time.Duration(w.GraceSeconds) * time.Second }

// PeerUpdate introduces a peer, or reports a change of it.
type PeerUpdate struct {
	Info tailnet.NodeInfo `json:"info"`
	Kind Kind             `json:"kind"`
	Ack  bool             `json:"ack,omitempty"` // answer ready when the node knows this peer
}

// PeerRef names a peer.
type PeerRef struct {
	ID uuid.UUID `json:"id"`
}

// PeerGone reports that a key no longer belongs to the peer.
type PeerGone struct {
	ID  uuid.UUID         `json:"id"`
	Key tailnet.PublicKey `json:"key"`
}

// Refused rejects a subscription, or withdraws one that was granted before.
type Refused struct {
	ID      uuid.UUID  `json:"id"`
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

// PeerPass is what an agent remembers of a client, to show it to another server: which session the client joined with.
// Only servers of the deployment can make and read a pass.
type PeerPass struct {
	ID   uuid.UUID         `json:"id"`
	Key  tailnet.PublicKey `json:"key"`
	Pass string            `json:"pass"`
}

// NoticeKind is the subject of a notice.
type NoticeKind string

const (
	NoticeDrain   NoticeKind = "drain"   // this server ends soon; the connection will be cut, another one will do
	NoticeUpgrade NoticeKind = "upgrade" // the client's version is about to lose support
)

// Notice is news for the participant's log or person.
type Notice struct {
	Kind    NoticeKind `json:"kind"`
	Message string     `json:"message"`
}

// ErrorMessage is the last message on a connection that the server ends.
type ErrorMessage struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

// ServerMessage is what a server sends: exactly one of its fields is set.
type ServerMessage struct {
	Welcome *Welcome    `json:"welcome,omitempty"`
	Peer    *PeerUpdate `json:"peer,omitempty"`
	Lost    *PeerRef    `json:"lost,omitempty"`
	Gone    *PeerGone   `json:"gone,omitempty"`
	Pass    *PeerPass   `json:"pass,omitempty"`
	Refused *Refused    `json:"refused,omitempty"`
	// Unsubscribed confirms unsubscribe. If the tunnel ended, gone was sent first.
	Unsubscribed *PeerRef `json:"unsubscribed,omitempty"`

	Relay  *tailnet.RelayMap `json:"relay,omitempty"`
	Notice *Notice           `json:"notice,omitempty"`
	Error  *ErrorMessage     `json:"error,omitempty"`
}

// Bye is the client's last message; it will not reconnect.
type Bye struct{}

// Restore names clients that an agent still has as peers when a server welcomes it. The server answers gone for each
// whose session has ended, and keeps the others as lost until they return. It is called held on the wire.
type Restore struct {
	Peers []PeerPass `json:"peers"` // without a pass if the agent never received one
}

// ClientMessage is what a client sends: exactly one of its fields is set.
type ClientMessage struct {
	Node        *tailnet.NodeInfo `json:"node,omitempty"`
	Subscribe   *PeerRef          `json:"subscribe,omitempty"`
	Unsubscribe *PeerRef          `json:"unsubscribe,omitempty"`
	Ready       *PeerRef          `json:"ready,omitempty"`
	Restore     *Restore          `json:"held,omitempty"`
	Bye         *Bye              `json:"bye,omitempty"`
}

// DecodeServerMessage decodes a server's message and validates everything that does not depend on other messages.
func DecodeServerMessage(data []byte) (ServerMessage, error) {
	var m ServerMessage
	if len(data) > MaxServerMessage {
		return m, fmt.Errorf("decode server message: %d bytes are too many", len(data))
	}
	if err := decode(data, &m); err != nil {
		return ServerMessage{}, fmt.Errorf("decode server message: %w", err)
	}
	if err := m.check(); err != nil {
		return ServerMessage{}, fmt.Errorf("decode server message: %w", err)
	}
	return m, nil
}

// DecodeClientMessage decodes a client's message and validates everything that does not depend on the sender.
func DecodeClientMessage(data []byte) (ClientMessage, error) {
	var m ClientMessage
	if len(data) > MaxClientMessage {
		return m, fmt.Errorf("decode client message: %d bytes are too many", len(data))
	}
	if err := decode(data, &m); err != nil {
		return ClientMessage{}, fmt.Errorf("decode client message: %w", err)
	}
	if err := m.check(); err != nil {
		return ClientMessage{}, fmt.Errorf("decode client message: %w", err)
	}
	return m, nil
}

// Encode encodes a message of this package. That cannot fail unless a type was changed without a test: then it panics.
func Encode(m any) []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("protocol: encode %T: %v", m, err))
	}
	return data
}

// decode is strict: both sides agreed on a version, so an unknown field is an error.
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

var errNotOne = errors.New("want exactly one kind of message")

func (m ServerMessage) check() error {
	if count(m.Welcome != nil, m.Peer != nil, m.Lost != nil, m.Gone != nil, m.Pass != nil, m.Refused != nil,
		m.Unsubscribed != nil, m.Relay != nil, m.Notice != nil, m.Error != nil) != 1 {
		return errNotOne
	}
	switch {
	case m.Welcome != nil:
		w := m.Welcome
		if w.Version < MinVersion || w.Version > Version {
			return fmt.Errorf("welcome: version %d is none of ours", w.Version)
		}
		if w.GraceSeconds < 0 || w.GraceSeconds > MaxGraceSeconds {
			return fmt.Errorf("welcome: grace of %d seconds", w.GraceSeconds)
		}
		return checkID("welcome", w.ID)
	case m.Peer != nil:
		if !m.Peer.Kind.Valid() {
			return fmt.Errorf("peer: kind %q", m.Peer.Kind)
		}
		return checkNode(m.Peer.Info)
	case m.Lost != nil:
		return checkID("lost", m.Lost.ID)
	case m.Gone != nil:
		if m.Gone.Key.IsZero() {
			return errors.New("gone: no key")
		}
		return checkID("gone", m.Gone.ID)
	case m.Pass != nil:
		return m.Pass.check("pass")
	case m.Refused != nil:
		if m.Refused.Code == "" {
			return errors.New("refused: no code")
		}
		return checkID("refused", m.Refused.ID)
	case m.Unsubscribed != nil:
		return checkID("unsubscribed", m.Unsubscribed.ID)
	case m.Error != nil && m.Error.Code == "":
		return errors.New("error: no code")
	}
	return nil
}

func (m ClientMessage) check() error {
	if count(m.Node != nil, m.Subscribe != nil, m.Unsubscribe != nil, m.Ready != nil, m.Restore != nil,
		m.Bye != nil) != 1 {
		return errNotOne
	}
	switch {
	case m.Node != nil:
		return checkNode(*m.Node)
	case m.Subscribe != nil:
		return checkID("subscribe", m.Subscribe.ID)
	case m.Unsubscribe != nil:
		return checkID("unsubscribe", m.Unsubscribe.ID)
	case m.Ready != nil:
		return checkID("ready", m.Ready.ID)
	case m.Restore != nil:
		if n := len(m.Restore.Peers); n == 0 || n > MaxRestore {
			return fmt.Errorf("restore: %d peers, want 1 to %d", n, MaxRestore)
		}
		for _, p := range m.Restore.Peers {
			if err := p.check("restore"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p PeerPass) check(what string) error {
	switch {
	case p.Key.IsZero():
		return fmt.Errorf("%s: no key", what)
	case len(p.Pass) > MaxPass:
		return fmt.Errorf("%s: a pass of %d bytes, at most %d", what, len(p.Pass), MaxPass)
	}
	return checkID(what, p.ID)
}

// MaxGraceSeconds is the longest grace of a welcome: a year, which keeps durations far from overflow.
const MaxGraceSeconds = 365 * 24 * 60 * 60

func count(set ...bool) int {
	n := 0
	for _, b := range set {
		if b {
			n++
		}
	}
	return n
}

func checkID(what string, id uuid.UUID) error {
	if id == uuid.Nil {
		return fmt.Errorf("%s: no id", what)
	}
	return nil
}
