// Package visa is how a server tells an agent that a visitor opens a port, a terminal or SSH of the workspace through a
// region proxy. The server signs a visa with the hash of the agent's token, which only it and the agent know, so the
// proxy can neither make nor change one. A visa names the proxy's node, whose address WireGuard has proven, and is
// worthless to every other node.
//
//	proxy                                     agent
//	"open <visa>\n", bytes of the app  ──▶    checks the visa, connects to the port, and cuts when the visa has expired
//	"open <visa>\n", datagrams         ──▶    the same for a UDP port, with netio.Datagrams
//	"open <visa>\n", ptywire frames    ──▶    the same for a terminal
//	"open <visa>\n", sshmux or SSH     ──▶    the same for what is on one of the agent's own mesh ports
//	"renew <visa>\n"                   ──▶    keeps what the visit has open until the new visa expires
package visa

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/signedtoken"
)

const (
	// Lifetime is how long a visa is valid, and so how long a visit goes on while its region cannot ask the servers. A
	// region's relay forwards for as long without them.
	Lifetime = 5 * time.Minute
	// Leeway is how far the clocks of server and agent may differ.
	Leeway = time.Minute

	// maxVisa and maxRequest are the longest visa and request in bytes.
	maxVisa    = 1 << 10
	maxRequest = maxVisa + 16
)

// ErrInvalid reports that a visa is not one of this agent's, or has expired.
var ErrInvalid = errors.New("the visa is not valid")

// errExpired is an ErrInvalid of a visa that the server has signed. Servers renew visas long before they expire, so the
// usual cause is a clock.
var errExpired = fmt.Errorf("%w: by this machine's clock it has expired; check the clock", ErrInvalid)

// Visa lets a node open connections to a port, terminals, or SSH. Agents of versions without terminals, SSH or UDP at
// regions refuse a visa for one, because its port is 0.
type Visa struct {
	Visit uuid.UUID `json:"v"` // the same in all visas of a visit
	Agent uuid.UUID `json:"a"`
	Node  uuid.UUID `json:"n"` // of the proxy
	User  uuid.UUID `json:"u"` // the visitor; Nil if not signed in
	Port  uint16    `json:"p,omitempty"`
	// Terminal takes the place of a port.
	Terminal bool `json:"t,omitempty"`
	// Service takes the place of a port, too: it is meshport.Session or meshport.SSH.
	Service uint16 `json:"s,omitempty"`
	// UDP is a UDP port, which takes the place of a TCP port.
	UDP     uint16 `json:"d,omitempty"`
	Expires int64  `json:"e"` // Unix time
}

// opensOne reports whether a visa is for exactly one thing that there is.
func (v Visa) opensOne() bool {
	things := 0
	for _, thing := range []bool{v.Port != 0, v.Terminal, v.Service != 0, v.UDP != 0} {
		if thing {
			things++
		}
	}
	return things == 1 && (v.Service == 0 || v.Service == meshport.Session || v.Service == meshport.SSH)
}

// purpose keeps other tokens that are signed with an agent's key, should there be any, from being visas.
const purpose = "visa"

// Sign returns the visa as text. key is the hash of the agent's token. It fails only if JSON cannot encode the visa.
func Sign(key []byte, v Visa) (secret.Token, error) {
	token, err := signedtoken.Sign(key, purpose, v)
	if err != nil {
		return "", fmt.Errorf("sign visa: %w", err)
	}
	return token, nil
}

// Open checks a visa. The error is ErrInvalid, whatever is wrong.
func Open(key []byte, token secret.Token, now time.Time) (Visa, error) {
	var v Visa
	if len(token) > maxVisa || signedtoken.Verify(key, purpose, token, &v) != nil || !v.opensOne() {
		return Visa{}, ErrInvalid
	}
	if !now.Before(time.Unix(v.Expires, 0).Add(Leeway)) {
		return Visa{}, errExpired
	}
	return v, nil
}

// Verb is what a request asks for.
type Verb string

const (
	OpenPort Verb = "open"  // connect to the port, or open a terminal
	Renew    Verb = "renew" // keep the visit's connections
)

// WriteRequest writes what begins a connection to an agent.
func WriteRequest(w io.Writer, verb Verb, token secret.Token) error {
	if _, err := io.WriteString(w, string(verb)+" "+token.Reveal()+"\n"); err != nil {
		return fmt.Errorf("show visa: %w", err)
	}
	return nil
}

// ReadRequest reads what WriteRequest wrote, and not a byte more.
func ReadRequest(r io.Reader) (Verb, secret.Token, error) {
	var line strings.Builder
	var b [1]byte
	for {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", "", fmt.Errorf("read visa: %w", err)
		}
		if b[0] == '\n' {
			break
		}
		if line.WriteByte(b[0]); line.Len() > maxRequest {
			return "", "", errors.New("read visa: it is too long")
		}
	}
	verb, token, _ := strings.Cut(line.String(), " ")
	switch v := Verb(verb); v {
	case OpenPort, Renew:
		return v, secret.Token(token), nil
	}
	return "", "", errors.New("read visa: no such request")
}
