// Package meshdns answers questions about the names and addresses of workspaces (DNS, RFC 1035), for those who reach them without our
// command line's forwards: the WireGuard gateway, for its devices, and coder connect, for the programs of a laptop. A Directory says what
// names mean to who asks. The package knows neither users nor the mesh.
package meshdns

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hostname"
)

const (
	// Port is where name servers answer.
	Port = 53
	// MaxAnswer is the longest answer over UDP, in bytes: what fits into a packet of the mesh with its headers.
	MaxAnswer = 1280 - 40 - 8

	// nameTTL is how long programs keep the address of a workspace, in seconds. It stays the same over restarts, so this bounds how long a name means
	// a workspace that was renamed.
	nameTTL = 30
	// noneTTL is how long they keep that a name does not exist, in seconds: it may begin to.
	noneTTL = 5
	// queryIdle is how long a flow of questions may be silent.
	queryIdle = 10 * time.Second
	// answerTimeout bounds one answer.
	answerTimeout = 10 * time.Second
	// forwardTimeout bounds one question to a resolver.
	forwardTimeout = 5 * time.Second
	// readLimit bounds a question, in bytes.
	readLimit = 4096
)

// Directory says what names and addresses mean to who asks. A fault means that there is nothing: whether it does not exist or may not be known.
type Directory interface {
	// Find returns the address that a name has, in the form [owner/]workspace[.agent].
	Find(ctx context.Context, name string) (netip.Addr, error)
	// Host returns the name that an address has, such as main.dev.ada.coder.
	Host(ctx context.Context, addr netip.Addr) (string, error)
}

// Options configure a Server.
type Options struct {
	// Prefix has the addresses of workspaces. Its length must be a multiple of 4.
	Prefix netip.Prefix
	// Resolvers returns the servers to ask about names outside of the mesh, as HOST:PORT. Nil: such questions are refused.
	Resolvers func() ([]string, error)
	Logger    *slog.Logger // nil: silent
}

// Server answers questions about names:
//
//   - dev.coder, dev.ada.coder and main.dev.ada.coder have the address of the agent, an IPv6 one, for users who may connect to it while it runs. All
//     other names below coder do not exist, whether because there is no such workspace or because the user may not know of it;
//   - addresses of the mesh have the full name of their agent, likewise;
//   - questions about all other names go to the resolvers, unless there are none. Answers lose the addresses of
//     the mesh that they contain, and names below coder, which devices would ask about next: no website may have a name that leads into it.
//
// It is safe for concurrent use.
type Server struct {
	opts Options
	zone string // of the prefix's addresses
	log  *slog.Logger
}

// New returns a server.
func New(opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{opts, ReverseZone(opts.Prefix), opts.Logger}
}

// ServeUDP answers the questions of a flow, until it is silent or ctx ends. It closes the flow. dir returns the directory for each question, or
// nil to refuse it.
func (s *Server) ServeUDP(ctx context.Context, c net.Conn, dir func() Directory) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	buf := make([]byte, readLimit)
	for {
		if c.SetReadDeadline(time.Now().Add(queryIdle)) != nil {
			return
		}
		k, err := c.Read(buf)
		if err != nil {
			return
		}
		answer := s.Answer(ctx, dir(), buf[:k], false)
		if answer == nil {
			continue
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// ServeTCP is ServeUDP for a connection.
func (s *Server) ServeTCP(ctx context.Context, c net.Conn, dir func() Directory) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
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
		answer := s.Answer(ctx, dir(), question[:k], true)
		if answer == nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// Answer returns the answer to a message, nil if it gets none. It refuses the question if dir is nil.
func (s *Server) Answer(ctx context.Context, dir Directory, message []byte, tcp bool) []byte {
	var q dns.Msg
	if q.Unpack(message) != nil || q.Response {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	reply := s.reply(ctx, dir, &q)
	if opt := q.IsEdns0(); opt != nil && reply.IsEdns0() == nil {
		reply.SetEdns0(MaxAnswer, false)
	}
	if !tcp {
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = min(max(int(opt.UDPSize()), size), MaxAnswer)
		}
		reply.Truncate(size)
	}
	packed, err := reply.Pack()
	if err != nil {
		s.log.Debug("cannot encode answer", "err", err)
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

func (s *Server) reply(ctx context.Context, dir Directory, q *dns.Msg) *dns.Msg {
	if q.Opcode != dns.OpcodeQuery {
		return failure(q, dns.RcodeNotImplemented)
	}
	if len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		return failure(q, dns.RcodeRefused)
	}
	question := q.Question[0]
	if dir == nil {
		return failure(q, dns.RcodeRefused)
	}
	if ownName(question.Name) {
		return s.own(ctx, dir, q, question)
	}
	if addr, ok := s.meshAddr(question.Name); ok {
		return s.reverse(ctx, dir, q, question, addr)
	}
	return s.forward(ctx, q)
}

// own answers a question about a name below coder.
func (s *Server) own(ctx context.Context, dir Directory, q *dns.Msg, question dns.Question) *dns.Msg {
	m := failure(q, dns.RcodeSuccess)
	m.Authoritative = true
	if !strings.EqualFold(question.Name, hostname.Domain+".") {
		addr, err := find(ctx, dir, question.Name)
		switch {
		case fault.As(err) != nil:
			m.Rcode = dns.RcodeNameError
		case err != nil:
			s.log.ErrorContext(ctx, "cannot look up a name", "err", err)
			return failure(q, dns.RcodeServerFailure)
		case question.Qtype == dns.TypeAAAA:
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(question.Name, dns.TypeAAAA, nameTTL), AAAA: addr.AsSlice()})
			return m
		case question.Qtype == dns.TypeA && q.IsEdns0() != nil:
			explain(m, "workspaces have IPv6 addresses only: ask for AAAA")
		}
	}
	m.Ns = append(m.Ns, authority(hostname.Domain+"."))
	return m
}

// find returns the address that a name below coder has.
func find(ctx context.Context, dir Directory, name string) (netip.Addr, error) {
	host, ok := hostname.Parse(name)
	if !ok {
		return netip.Addr{}, fault.New(fault.NotFound, "No workspace can have the name.")
	}
	return dir.Find(ctx, host)
}

// reverse answers a question about an address of the mesh.
func (s *Server) reverse(ctx context.Context, dir Directory, q *dns.Msg, question dns.Question, addr netip.Addr) *dns.Msg {
	m := failure(q, dns.RcodeSuccess)
	m.Authoritative = true
	host, err := dir.Host(ctx, addr)
	switch {
	case fault.As(err) != nil:
		m.Rcode = dns.RcodeNameError
	case err != nil:
		s.log.ErrorContext(ctx, "cannot look up an address", "err", err)
		return failure(q, dns.RcodeServerFailure)
	case question.Qtype == dns.TypePTR:
		m.Answer = append(m.Answer, &dns.PTR{Hdr: header(question.Name, dns.TypePTR, nameTTL), Ptr: host + "."})
		return m
	}
	m.Ns = append(m.Ns, authority(s.zone))
	return m
}

// forward asks the resolvers, one after the other.
func (s *Server) forward(ctx context.Context, q *dns.Msg) *dns.Msg {
	if s.opts.Resolvers == nil {
		return failure(q, dns.RcodeRefused)
	}
	servers, err := s.opts.Resolvers()
	if err != nil {
		s.log.WarnContext(ctx, "cannot find the machine's resolvers", "err", err)
	}
	for _, server := range servers {
		answer, asked := s.exchange(ctx, q, server)
		if asked == nil && answer.Rcode != dns.RcodeServerFailure && answer.Rcode != dns.RcodeRefused {
			s.withoutMesh(answer)
			return answer
		}
		err = errors.Join(err, asked)
	}
	s.log.DebugContext(ctx, "no resolver answers", "err", err)
	return failure(q, dns.RcodeServerFailure)
}

// exchange asks one resolver, over TCP if the answer over UDP is cut.
func (s *Server) exchange(ctx context.Context, q *dns.Msg, server string) (answer *dns.Msg, err error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	// The asker's own id and options are not the resolver's business.
	ask := new(dns.Msg)
	ask.SetQuestion(q.Question[0].Name, q.Question[0].Qtype)
	ask.SetEdns0(MaxAnswer, false)
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

// withoutMesh removes what leads into the mesh from the answer of a resolver.
func (s *Server) withoutMesh(m *dns.Msg) {
	kept := m.Answer[:0]
	for _, rr := range m.Answer {
		if !s.leadsIntoMesh(rr) {
			kept = append(kept, rr)
		}
	}
	m.Answer = kept
}

func (s *Server) leadsIntoMesh(rr dns.RR) bool {
	inMesh := func(ip net.IP) bool {
		addr, ok := netip.AddrFromSlice(ip)
		return ok && s.opts.Prefix.Contains(addr)
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
	m.SetEdns0(MaxAnswer, false)
	opt := m.IsEdns0()
	opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeOther, ExtraText: reason})
}

// ReverseZone returns the name below which the addresses of an IPv6 prefix are, whose length is a multiple of 4.
func ReverseZone(p netip.Prefix) string {
	name, _ := dns.ReverseAddr(p.Addr().String()) // an address always has one
	labels := dns.SplitDomainName(name)
	return dns.Fqdn(strings.Join(labels[32-p.Bits()/4:], "."))
}

// meshAddr returns the address of the mesh that a name below ip6.arpa is about (RFC 3596). ok is false for other names, and the address is invalid for
// names of the zone that are no full address.
func (s *Server) meshAddr(name string) (addr netip.Addr, ok bool) {
	if !dns.IsSubDomain(s.zone, name) {
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
func SystemResolvers() ([]string, error) { return Resolvers("/etc/resolv.conf") }

// Resolvers returns the name servers of a resolver configuration in a file.
func Resolvers(file string) ([]string, error) {
	config, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, err
	}
	servers := make([]string, len(config.Servers))
	for i, server := range config.Servers {
		servers[i] = net.JoinHostPort(server, config.Port)
	}
	return servers, nil
}
