package protocol

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Hello is what a client sends in its request.
type Hello struct {
	Version   int
	Key       tailnet.PublicKey
	Subscribe []uuid.UUID
	// Node is the client's announcement, as in a node message. If nil, the announcement follows the welcome.
	Node *tailnet.NodeInfo
	// Name is the participant that the client is about to ask for, in a form that the server's Options.Resolve
	// understands. The server subscribes the client to it unasked. It is a hint: if the name is unknown, or the client
	// may not see it, the server does not answer.
	Name string
	// At is when the request arrived, before its credential was checked: if the principal was revoked since, the check
	// does not count. The zero value means now.
	At time.Time
}

// ParseHello reads the query of a request for Path. Call it before authenticating the request. Its errors are faults.
func ParseHello(r *http.Request) (Hello, error) {
	h, err := parseQuery(r.URL.Query())
	if err != nil {
		return Hello{}, err
	}
	if text := r.Header.Get(NodeHeader); text != "" {
		if h.Node, err = parseNode(text); err != nil {
			return Hello{}, fault.New(fault.Invalid, "the node's announcement is malformed: %w", err).
				WithField(NodeHeader, "want a node as in a node message")
		}
	}
	h.At = time.Now()
	return h, nil
}

// NodeHeader carries the announcement of a hello: unlike the query, it does not appear in the access logs of proxies.
const NodeHeader = "Coder-Mesh-Node"

func parseNode(text string) (*tailnet.NodeInfo, error) {
	if len(text) > MaxHelloNode {
		return nil, fmt.Errorf("%d bytes are too many", len(text))
	}
	n := new(tailnet.NodeInfo)
	if err := decode([]byte(text), n); err != nil {
		return nil, err
	}
	return n, checkNode(*n)
}

// Header returns the headers of a request with this hello, or nil if it carries no announcement. ParseHello is the
// inverse of Query and Header.
func (h Hello) Header() http.Header {
	if h.Node == nil {
		return nil
	}
	return http.Header{NodeHeader: {string(Encode(h.Node))}}
}

func parseQuery(q url.Values) (Hello, error) {
	var h Hello
	var err error
	if h.Version, err = strconv.Atoi(q.Get("v")); err != nil || h.Version < 1 {
		return Hello{}, fault.New(fault.Invalid, "the mesh protocol version is missing or not a number").
			WithField("v", "want a number")
	}
	if h.Version < MinVersion {
		return Hello{}, fault.New(fault.Invalid, "this program speaks version %d of the mesh protocol, the server needs %d or newer", h.Version, MinVersion).
			WithDetail("install the version of the command line that the server offers")
	}
	if h.Key, err = tailnet.ParsePublicKey(q.Get("key")); err != nil || h.Key.IsZero() {
		return Hello{}, fault.New(fault.Invalid, "the node key is missing or malformed").
			WithField("key", "want a node public key")
	}
	ids := q["subscribe"]
	if len(ids) > MaxHelloSubscriptions {
		return Hello{}, fault.New(fault.Invalid, "%d subscriptions at once are too many", len(ids)).
			WithField("subscribe", fmt.Sprintf("at most %d", MaxHelloSubscriptions))
	}
	for _, text := range ids {
		id, err := uuid.Parse(text)
		if err != nil || id == uuid.Nil {
			return Hello{}, fault.New(fault.Invalid, "a subscription is malformed").WithField("subscribe", "want an id")
		}
		if !slices.Contains(h.Subscribe, id) {
			h.Subscribe = append(h.Subscribe, id)
		}
	}
	h.Name = q.Get("name")
	if len(h.Name) > MaxName || !utf8.ValidString(h.Name) {
		return Hello{}, fault.New(fault.Invalid, "the name is too long or not valid text").
			WithField("name", fmt.Sprintf("at most %d bytes of UTF-8", MaxName))
	}
	return h, nil
}

// Query returns the query of a request with this hello.
func (h Hello) Query() url.Values {
	q := url.Values{"v": {strconv.Itoa(h.Version)}, "key": {h.Key.String()}}
	for _, id := range h.Subscribe {
		q.Add("subscribe", id.String())
	}
	if h.Name != "" {
		q.Set("name", h.Name)
	}
	return q
}

// checkNode validates an announcement against the rules for every node.
func checkNode(n tailnet.NodeInfo) error {
	if n.ID == uuid.Nil || n.Key.IsZero() {
		return fmt.Errorf("node: no id or no key")
	}
	if n.Region < 0 {
		return fmt.Errorf("node: region %d", n.Region)
	}
	if len(n.Endpoints) > MaxEndpoints {
		return fmt.Errorf("node: %d endpoints, at most %d", len(n.Endpoints), MaxEndpoints)
	}
	for _, ep := range n.Endpoints {
		if !validEndpoint(ep) {
			return fmt.Errorf("node: endpoint %s is not an address to send to", ep)
		}
	}
	if n.Mapped.IsValid() && !slices.Contains(n.Endpoints, n.Mapped) {
		return fmt.Errorf("node: it is mapped to %s, which is none of its endpoints", n.Mapped)
	}
	return nil
}

// validEndpoint reports whether ep has a port and a unicast address outside of the mesh (a tunnel inside the tunnel
// would never end).
func validEndpoint(ep netip.AddrPort) bool {
	a := ep.Addr().Unmap()
	return ep.IsValid() && ep.Port() != 0 && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == "" &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && !tailnet.Prefix.Contains(a)
}

// Presentable returns info in a form that a server accepts: without invalid endpoints, and with at most MaxEndpoints.
func Presentable(info tailnet.NodeInfo) tailnet.NodeInfo {
	info.Endpoints = slices.DeleteFunc(slices.Clone(info.Endpoints),
		func(ep netip.AddrPort) bool { return !validEndpoint(ep) })
	if len(info.Endpoints) > MaxEndpoints {
		info.Endpoints = info.Endpoints[:MaxEndpoints]
	}
	if !slices.Contains(info.Endpoints, info.Mapped) {
		info.Mapped = netip.AddrPort{}
	}
	return info
}
