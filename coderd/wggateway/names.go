package wggateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hostname"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// nameTTL is how long devices keep the address of a workspace, in seconds. It stays the same over restarts, so this bounds how long a name means
	// a workspace that was renamed.
	nameTTL = 30
	// noneTTL is how long they keep that a name does not exist, in seconds: it may begin to.
	noneTTL = 5
	// queryIdle is how long a flow of questions may be silent.
	queryIdle = 10 * time.Second
	// forwardTimeout bounds one question to a resolver.
	forwardTimeout = 5 * time.Second
	// Each device may ask perSecond times in a second, after a burst: a page names dozens of hosts.
	perSecond, burst = 50, 300
	// maxLimits bounds the devices whose questions are counted. It is forgotten who has asked how often when there are more.
	maxLimits = 4096
	// maxAnswer is the longest answer over UDP, in bytes: what fits into a packet of the tunnel with its headers.
	maxAnswer = 1280 - 40 - 8
	// readLimit bounds a question, in bytes.
	readLimit = 4096
)

// names answers devices' questions about names (DNS, RFC 1035):
//
//   - dev.coder, dev.ada.coder and main.dev.ada.coder have the address of the agent, an IPv6 one, for users who may connect to it while it runs. All
//     other names below coder do not exist, whether because there is no such workspace or because the user may not know of it;
//   - addresses of the mesh have the full name of their agent, likewise;
//   - questions about all other names go to the server's own resolvers, unless the operator has switched that off. Answers lose the addresses of
//     the mesh that they contain, and names below coder, which devices would ask about next: no website may have a name that leads into it.
type names struct {
	*Gateway

	mu     sync.Mutex // guards the field below
	limits map[netip.Addr]*rate.Limiter
}

func newNames(g *Gateway) *names { return &names{Gateway: g, limits: map[netip.Addr]*rate.Limiter{}} }

// serveUDP answers the questions of a flow, until it is silent. It closes the flow.
func (n *names) serveUDP(c net.Conn, from netip.Addr) {
	defer c.Close()
	if !n.enter() {
		return
	}
	defer n.serving.Done()
	defer context.AfterFunc(n.run, func() { c.Close() })()
	buf := make([]byte, readLimit)
	for {
		if c.SetReadDeadline(time.Now().Add(queryIdle)) != nil {
			return
		}
		k, err := c.Read(buf)
		if err != nil {
			return
		}
		answer := n.answer(from, buf[:k], false)
		if answer == nil {
			continue
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// serveTCP answers the questions of a connection, until it is silent. It closes the connection.
func (n *names) serveTCP(c net.Conn, from netip.Addr) {
	defer c.Close()
	if !n.enter() {
		return
	}
	defer n.serving.Done()
	defer context.AfterFunc(n.run, func() { c.Close() })()
	conn := &dns.Conn{Conn: c}
	for {
		if c.SetDeadline(time.Now().Add(queryIdle+forwardTimeout)) != nil {
			return
		}
		question := make([]byte, readLimit)
		k, err := conn.Read(question) // a message, without the length before it
		if err != nil {
			return
		}
		answer := n.answer(from, question[:k], true)
		if answer == nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// answer returns the answer to a message, nil if it gets none.
func (n *names) answer(from netip.Addr, message []byte, tcp bool) []byte {
	var q dns.Msg
	if q.Unpack(message) != nil || q.Response {
		return nil
	}
	ctx, cancel := context.WithTimeout(n.run, askTimeout)
	defer cancel()
	reply := n.reply(ctx, from, &q)
	if opt := q.IsEdns0(); opt != nil && reply.IsEdns0() == nil {
		reply.SetEdns0(maxAnswer, false)
	}
	if !tcp {
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = min(max(int(opt.UDPSize()), size), maxAnswer)
		}
		reply.Truncate(size)
	}
	packed, err := reply.Pack()
	if err != nil {
		n.log.Debug("cannot encode answer to a device", "device", from, "err", err)
		return nil
	}
	return packed
}

// failure returns an answer that is a response code and no more.
func failure(q *dns.Msg, code int) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(q, code)
	m.RecursionAvailable = true
	return m
}

func (n *names) reply(ctx context.Context, from netip.Addr, q *dns.Msg) *dns.Msg {
	if q.Opcode != dns.OpcodeQuery {
		return failure(q, dns.RcodeNotImplemented)
	}
	if len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		return failure(q, dns.RcodeRefused)
	}
	question := q.Question[0]
	d := n.device(from)
	if d == nil || !n.allow(from) {
		return failure(q, dns.RcodeRefused)
	}
	if ownName(question.Name) {
		return n.own(ctx, d, q, question)
	}
	if addr, ok := meshAddr(question.Name); ok {
		return n.reverse(ctx, d, q, question, addr)
	}
	return n.forward(ctx, q)
}

// own answers a question about a name below coder.
func (n *names) own(ctx context.Context, d *device, q *dns.Msg, question dns.Question) *dns.Msg {
	m := failure(q, dns.RcodeSuccess)
	m.Authoritative = true
	if !strings.EqualFold(question.Name, hostname.Domain+".") {
		agent, err := n.find(ctx, d, question.Name)
		switch {
		case fault.As(err) != nil:
			m.Rcode = dns.RcodeNameError
		case err != nil:
			n.log.ErrorContext(ctx, "cannot look up the name that a device asks for", "err", err)
			return failure(q, dns.RcodeServerFailure)
		case question.Qtype == dns.TypeAAAA:
			addr := tailnet.Addr(agent)
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(question.Name, dns.TypeAAAA, nameTTL), AAAA: addr.AsSlice()})
			return m
		case question.Qtype == dns.TypeA && q.IsEdns0() != nil:
			explain(m, "workspaces have IPv6 addresses only: ask for AAAA")
		}
	}
	m.Ns = append(m.Ns, authority(hostname.Domain+"."))
	return m
}

// find returns the agent that a name means to a device, or a fault if the device may not know of one.
func (n *names) find(ctx context.Context, d *device, name string) (uuid.UUID, error) {
	host, ok := hostname.Parse(name)
	if !ok {
		return uuid.Nil, fault.New(fault.NotFound, "No workspace can have the name.")
	}
	agent, err := n.opts.Agents.ByName(ctx, d.UserID, host)
	if err != nil {
		return uuid.Nil, err
	}
	return agent, n.may(ctx, d, agent)
}

// reverse answers a question about an address of the mesh.
func (n *names) reverse(ctx context.Context, d *device, q *dns.Msg, question dns.Question, addr netip.Addr) *dns.Msg {
	m := failure(q, dns.RcodeSuccess)
	m.Authoritative = true
	host, err := n.hostOf(ctx, d, addr)
	switch {
	case fault.As(err) != nil:
		m.Rcode = dns.RcodeNameError
	case err != nil:
		n.log.ErrorContext(ctx, "cannot look up the address that a device asks for", "err", err)
		return failure(q, dns.RcodeServerFailure)
	case question.Qtype == dns.TypePTR:
		m.Answer = append(m.Answer, &dns.PTR{Hdr: header(question.Name, dns.TypePTR, nameTTL), Ptr: host + "."})
		return m
	}
	m.Ns = append(m.Ns, authority(meshZone))
	return m
}

func (n *names) hostOf(ctx context.Context, d *device, addr netip.Addr) (string, error) {
	agent, ok := n.opts.Mesh.CallingAgent(addr)
	if !ok {
		return "", fault.New(fault.NotFound, "No agent has the address.")
	}
	if err := n.may(ctx, d, agent); err != nil {
		return "", err
	}
	return n.opts.Agents.Host(ctx, d.UserID, agent)
}

// forward asks the server's resolvers, one after the other.
func (n *names) forward(ctx context.Context, q *dns.Msg) *dns.Msg {
	if n.opts.Resolvers == nil {
		return failure(q, dns.RcodeRefused)
	}
	servers, err := n.opts.Resolvers()
	if err != nil {
		n.log.WarnContext(ctx, "cannot find the server's resolvers for a device", "err", err)
	}
	for _, server := range servers {
		answer, asked := n.exchange(ctx, q, server)
		if asked == nil && answer.Rcode != dns.RcodeServerFailure && answer.Rcode != dns.RcodeRefused {
			withoutMesh(answer)
			return answer
		}
		err = errors.Join(err, asked)
	}
	n.log.DebugContext(ctx, "no resolver answers", "err", err)
	return failure(q, dns.RcodeServerFailure)
}

// exchange asks one resolver, over TCP if the answer over UDP is cut.
func (n *names) exchange(ctx context.Context, q *dns.Msg, server string) (answer *dns.Msg, err error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	// The device's own id and options are not the resolver's business.
	ask := new(dns.Msg)
	ask.SetQuestion(q.Question[0].Name, q.Question[0].Qtype)
	ask.SetEdns0(maxAnswer, false)
	for _, network := range []string{"udp", "tcp"} {
		answer, _, err = (&dns.Client{Net: network, Timeout: forwardTimeout}).ExchangeContext(ctx, ask, server)
		if err != nil {
			return nil, err
		}
		if !answer.Truncated {
			break
		}
	}
	m := failure(q, answer.Rcode)
	m.Answer, m.Ns = answer.Answer, answer.Ns
	return m, nil
}

// allow counts a question of a device.
func (n *names) allow(from netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	limit := n.limits[from]
	if limit == nil {
		if len(n.limits) >= maxLimits {
			clear(n.limits)
		}
		limit = rate.NewLimiter(perSecond, burst)
		n.limits[from] = limit
	}
	return limit.Allow()
}

// withoutMesh removes what leads into the mesh from the answer of a resolver.
func withoutMesh(m *dns.Msg) {
	kept := m.Answer[:0]
	for _, rr := range m.Answer {
		if !leadsIntoMesh(rr) {
			kept = append(kept, rr)
		}
	}
	m.Answer = kept
}

func leadsIntoMesh(rr dns.RR) bool {
	inMesh := func(ip net.IP) bool {
		addr, ok := netip.AddrFromSlice(ip)
		return ok && tailnet.Prefix.Contains(addr)
	}
	hints := func(values []dns.SVCBKeyValue) bool {
		for _, value := range values {
			if hint, ok := value.(*dns.SVCBIPv6Hint); ok {
				for _, ip := range hint.Hint {
					if inMesh(ip) {
						return true
					}
				}
			}
		}
		return false
	}
	switch rr := rr.(type) {
	case *dns.AAAA:
		return inMesh(rr.AAAA)
	case *dns.CNAME:
		return ownName(rr.Target)
	case *dns.DNAME:
		return ownName(rr.Target)
	case *dns.SRV:
		return ownName(rr.Target)
	case *dns.SVCB:
		return ownName(rr.Target) || hints(rr.Value)
	case *dns.HTTPS:
		return ownName(rr.Target) || hints(rr.Value)
	}
	return false
}

// ownName reports whether a name is below coder.
func ownName(name string) bool { return dns.IsSubDomain(hostname.Domain+".", name) }

func header(name string, kind uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

// authority returns what says for how long a name does not exist (RFC 2308).
func authority(zone string) *dns.SOA {
	return &dns.SOA{
		Hdr: header(zone, dns.TypeSOA, noneTTL), Ns: zone, Mbox: "hostmaster." + zone, Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: noneTTL,
	}
}

// explain adds a reason for people to an answer (RFC 8914).
func explain(m *dns.Msg, reason string) {
	m.SetEdns0(maxAnswer, false)
	opt := m.IsEdns0()
	opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeOther, ExtraText: reason})
}

// meshZone is the zone of the mesh's addresses.
var meshZone = reverseZone(tailnet.Prefix)

// reverseZone returns the name below which the addresses of an IPv6 prefix are, whose length is a multiple of 4.
func reverseZone(p netip.Prefix) string {
	name, _ := dns.ReverseAddr(p.Addr().String()) // an address always has one
	labels := dns.SplitDomainName(name)
	return dns.Fqdn(strings.Join(labels[32-p.Bits()/4:], "."))
}

// meshAddr returns the address of the mesh that a name below ip6.arpa is about (RFC 3596). ok is false for other names, and the address is invalid for
// names of the zone that are no full address.
func meshAddr(name string) (addr netip.Addr, ok bool) {
	if !dns.IsSubDomain(meshZone, name) {
		return addr, false
	}
	labels := dns.SplitDomainName(name)
	if len(labels) != 34 {
		return addr, true
	}
	var text strings.Builder
	for i := 31; i >= 0; i-- {
		if len(labels[i]) != 1 {
			return netip.Addr{}, true
		}
		text.WriteString(labels[i])
		if i%4 == 0 && i > 0 {
			text.WriteByte(':')
		}
	}
	addr, _ = netip.ParseAddr(text.String())
	return addr, true
}

// SystemResolvers returns the name servers of the machine's resolver configuration.
func SystemResolvers() ([]string, error) {
	config, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	servers := make([]string, len(config.Servers))
	for i, server := range config.Servers {
		servers[i] = net.JoinHostPort(server, config.Port)
	}
	return servers, nil
}
