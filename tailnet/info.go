package tailnet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Prefix is the mesh's own IPv6 unique local prefix (RFC 4193, a random 40-bit global id). Every node's address lies in
// it.
var Prefix = netip.MustParsePrefix("fd3b:8e1f:47c2::/48")

// Addr returns the mesh address of the participant with the given id: Prefix followed by the first 80 bits of the id's
// SHA-256.
func Addr(id uuid.UUID) netip.Addr {
	sum := sha256.Sum256(id[:])
	addr := Prefix.Addr().As16()
	copy(addr[6:], sum[:10])
	return netip.AddrFrom16(addr)
}

// ClientID returns the id of an ephemeral participant that has no identity other than its key.
func ClientID(key PublicKey) uuid.UUID {
	sum := sha256.Sum256(append([]byte("codermesh client "), key[:]...))
	return uuid.NewSHA1(uuid.Nil, sum[:])
}

// PublicKey is a node's WireGuard public key (Curve25519). Its text form is "nodekey:" and 64 hex digits.
type PublicKey [32]byte

// DiscoKey is a node's path discovery public key. Its text form is "discokey:" and 64 hex digits.
type DiscoKey [32]byte

func (k PublicKey) IsZero() bool { return k == PublicKey{} }
func (k DiscoKey) IsZero() bool  { return k == DiscoKey{} }

// String returns the key's text form: a public key is not secret.
func (k PublicKey) String() string { return "nodekey:" + hex.EncodeToString(k[:]) }
func (k DiscoKey) String() string  { return "discokey:" + hex.EncodeToString(k[:]) }

func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k DiscoKey) MarshalText() ([]byte, error)  { return []byte(k.String()), nil }

func (k *PublicKey) UnmarshalText(text []byte) error { return parseKey(k[:], "nodekey:", string(text)) }
func (k *DiscoKey) UnmarshalText(text []byte) error {
	return parseKey(k[:], "discokey:", string(text))
}

// ParsePublicKey parses the text form of a key.
func ParsePublicKey(text string) (PublicKey, error) {
	var k PublicKey
	err := k.UnmarshalText([]byte(text))
	return k, err
}

func parseKey(into []byte, prefix, text string) error {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok || len(digits) != 2*len(into) {
		return fmt.Errorf("parse key: want %q and %d hex digits", prefix, 2*len(into))
	}
	if _, err := hex.Decode(into, []byte(digits)); err != nil {
		return fmt.Errorf("parse key: %w", err)
	}
	return nil
}

// NodeInfo is what a node tells its peers about itself.
type NodeInfo struct {
	ID        uuid.UUID        `json:"id"`
	Key       PublicKey        `json:"key"`
	Disco     DiscoKey         `json:"disco"`
	Region    int              `json:"region"`    // home relay region, 0 while unknown
	Endpoints []netip.AddrPort `json:"endpoints"` // where it may be reached directly, best first
	Seq       uint64           `json:"seq"`       // grows with every change during one process's lifetime
	// Moves grows when the node's network changes. What peers learned before about direct paths to the node is then
	// void: they would keep sending there for another six seconds.
	Moves uint64 `json:"moves,omitempty"`
	// Mapped is the node's address as seen from outside its NAT, one of Endpoints. It is invalid if there is no NAT or
	// no STUN server answers, and while Measured is false.
	Mapped   netip.AddrPort `json:"mapped,omitzero"`
	Measured bool           `json:"measured,omitempty"`
	// Streams is the version of the stream protocol that the node speaks. Zero means TCP only.
	Streams int `json:"streams,omitempty"`
}

// Addr returns the node's mesh address. It is derived from the id, so a node cannot claim another's.
func (n NodeInfo) Addr() netip.Addr { return Addr(n.ID) }

// RelayMap lists the relays that carry packets while, or where, there is no direct path.
type RelayMap struct {
	Regions []RelayRegion `json:"regions"`
	// RelayOnly turns off direct paths. A node that follows it sends no UDP packets, whatever its peers do.
	RelayOnly bool `json:"relay_only,omitempty"`
	// STUN has further STUN servers, as host:port, at most MaxSTUN. They count as those of ServerRegion: the first answer
	// is a node's distance to it.
	STUN []string `json:"stun,omitempty"`
}

// MaxSTUN is the most further STUN servers of a map: a measurement asks about as many.
const MaxSTUN = 4

// ParseSTUN returns the host and the UDP port of a STUN server, which is written as host:port.
func ParseSTUN(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("STUN server %q: must be host:port", address)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || host == "" || len(host) > maxHost {
		return "", 0, fmt.Errorf("STUN server %q: must be a host and a port from 1 to 65535", address)
	}
	return host, uint16(n), nil
}

// maxHost is the length of the longest name of a host, in bytes (RFC 1035).
const maxHost = 253

// RelayRegion is one relay.
type RelayRegion struct {
	ID   int    `json:"id"` // positive
	Code string `json:"code"`
	Name string `json:"name"`
	// URL is the relay's base URL, to which "/derp" is added. Empty means the URL at which the node itself reaches its
	// server: a client behind a tunnel knows that better than the server does.
	URL string `json:"url,omitempty"`
	// STUNPort is the UDP port on the same host that answers STUN. 0 means none.
	STUNPort int `json:"stun_port,omitempty"`
}
