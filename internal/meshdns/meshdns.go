// Package meshdns answers questions about the names and addresses of workspaces (DNS, RFC 1035), for those who reach
// them without our command line's forwards: the WireGuard gateway, for its devices, and coder connect, for the programs
// of a laptop. A Directory says what names mean to who asks. The package knows neither users nor the mesh.
package meshdns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hostname"
)

const (
	// Port is where name servers answer.
	Port = 53
	// MaxAnswer is the longest answer over UDP, in bytes: what fits into a packet of the mesh with its headers.
	MaxAnswer = 1280 - 40 - 8

	// nameTTL is how long programs keep the address of a workspace, in seconds. It stays the same over restarts, so
	// this bounds how long a name means a workspace that was renamed.
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
	// plainSize is the longest answer over UDP to who does not say more, in bytes (RFC 1035, section 4.2.1).
	plainSize = 512
)

// Directory says what names and addresses mean to who asks. A fault means that there is nothing: whether it does not
// exist or may not be known.
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
	// Resolvers returns the servers to ask about names outside of the mesh, as HOST:PORT. Nil: such questions are
	// refused.
	Resolvers func() ([]string, error)
	Logger    *slog.Logger // nil: silent
}

// Server answers questions about names:
//
//   - dev.coder, dev.ada.coder and main.dev.ada.coder have the address of the agent, an IPv6 one, for users who may
//     connect to it while it runs. All other names below coder do not exist, whether because there is no such workspace
//     or because the user may not know of it;
//   - addresses of the mesh have the full name of their agent, likewise;
//   - questions about all other names go to the resolvers, unless there are none. Answers lose the addresses of the
//     mesh that they contain, and names below coder, which devices would ask about next: no website may have a name
//     that leads into it.
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

// ServeUDP answers the questions of a flow, until it is silent or ctx ends. It closes the flow. dir returns the
// directory for each question, or nil to refuse it.
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
	for {
		if c.SetDeadline(time.Now().Add(queryIdle+forwardTimeout)) != nil {
			return
		}
		question, err := readTCP(c, readLimit)
		if err != nil {
			return
		}
		answer := s.Answer(ctx, dir(), question, true)
		if answer == nil {
			return
		}
		if err := writeTCP(c, answer); err != nil {
			return
		}
	}
}

// readTCP reads a message of at most limit bytes, which follows its length (RFC 1035, section 4.2.2).
func readTCP(r io.Reader, limit int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	if len(message) > limit {
		return nil, errors.New("message is too long")
	}
	_, err := io.ReadFull(r, message)
	return message, err
}

func writeTCP(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}

// query is what was asked.
type query struct {
	dnsmessage.Header
	question  dnsmessage.Question // the zero value: there was not exactly one
	malformed bool
	edns      bool // the asker knows EDNS (RFC 6891)
	size      int  // the longest answer over UDP that it takes, in bytes
}

// parse reads a question. ok is false for what gets no answer: it is none.
func parse(message []byte) (q query, ok bool) {
	var p dnsmessage.Parser
	var err error
	if q.Header, err = p.Start(message); err != nil || q.Response {
		return q, false
	}
	q.size = plainSize
	questions, err := p.AllQuestions()
	if err == nil && len(questions) == 1 {
		q.question = questions[0]
	}
	err = errors.Join(err, p.SkipAllAnswers(), p.SkipAllAuthorities())
	for err == nil {
		var h dnsmessage.ResourceHeader
		if h, err = p.AdditionalHeader(); err != nil {
			break
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns, q.size = true, min(max(int(h.Class), plainSize), MaxAnswer)
		}
		err = p.SkipAdditional()
	}
	q.malformed = !errors.Is(err, dnsmessage.ErrSectionDone)
	return q, true
}

// Answer returns the answer to a message, nil if it gets none. It refuses the question if dir is nil.
func (s *Server) Answer(ctx context.Context, dir Directory, message []byte, tcp bool) []byte {
	q, ok := parse(message)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	reply := s.reply(ctx, dir, q)
	if q.edns && len(reply.Additionals) == 0 {
		setOptions(reply)
	}
	packed, err := reply.Pack()
	if err == nil && !tcp && len(packed) > q.size {
		reply.Truncated, reply.Answers, reply.Authorities = true, nil, nil // the asker comes back over TCP
		packed, err = reply.Pack()
	}
	if err != nil {
		s.log.Debug("cannot encode answer", "err", err)
		return nil
	}
	return packed
}

// failure returns an answer that is a response code and no more.
func failure(q query, code dnsmessage.RCode) *dnsmessage.Message {
	m := &dnsmessage.Message{Header: dnsmessage.Header{
		ID: q.ID, Response: true, OpCode: q.OpCode, RCode: code,
		RecursionDesired: q.RecursionDesired, RecursionAvailable: true,
	}}
	if q.question.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{q.question}
	}
	return m
}

// setOptions says how long messages to us may be, with options (RFC 6891).
func setOptions(m *dnsmessage.Message, options ...dnsmessage.Option) {
	var h dnsmessage.ResourceHeader
	_ = h.SetEDNS0(MaxAnswer, m.RCode, false) // has no errors
	m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{Options: options}}}
}

func (s *Server) reply(ctx context.Context, dir Directory, q query) *dnsmessage.Message {
	switch {
	case q.OpCode != 0:
		return failure(q, dnsmessage.RCodeNotImplemented)
	case q.malformed:
		return failure(q, dnsmessage.RCodeFormatError)
	case dir == nil || q.question.Name.Length == 0 || q.question.Class != dnsmessage.ClassINET:
		return failure(q, dnsmessage.RCodeRefused)
	}
	name := q.question.Name.String()
	if ownName(name) {
		return s.own(ctx, dir, q, name)
	}
	if addr, ok := s.meshAddr(name); ok {
		return s.reverse(ctx, dir, q, addr)
	}
	return s.forward(ctx, q)
}

// own answers a question about a name below coder.
func (s *Server) own(ctx context.Context, dir Directory, q query, name string) *dnsmessage.Message {
	m := failure(q, dnsmessage.RCodeSuccess)
	m.Authoritative = true
	if !strings.EqualFold(name, zoneOfNames) {
		addr, err := find(ctx, dir, name)
		switch {
		case fault.As(err) != nil:
			m.RCode = dnsmessage.RCodeNameError
		case err != nil:
			s.log.ErrorContext(ctx, "cannot look up a name", "err", err)
			return failure(q, dnsmessage.RCodeServerFailure)
		case q.question.Type == dnsmessage.TypeAAAA:
			answer(m, &dnsmessage.AAAAResource{AAAA: addr.As16()})
			return m
		case q.question.Type == dnsmessage.TypeA && q.edns:
			explain(m, "workspaces have IPv6 addresses only: ask for AAAA")
		}
	}
	m.Authorities = authority(zoneOfNames)
	return m
}

// find returns the address that a name below coder has.
func find(ctx context.Context, dir Directory, name string) (netip.Addr, error) {
	host, ok := hostname.Parse(name)
	// The bytes of a label may be any.
	if !ok || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return netip.Addr{}, fault.New(fault.NotFound, "No workspace can have the name.")
	}
	return dir.Find(ctx, host)
}

// reverse answers a question about an address of the mesh.
func (s *Server) reverse(ctx context.Context, dir Directory, q query, addr netip.Addr) *dnsmessage.Message {
	m := failure(q, dnsmessage.RCodeSuccess)
	m.Authoritative = true
	host, err := dir.Host(ctx, addr)
	switch {
	case fault.As(err) != nil:
		m.RCode = dnsmessage.RCodeNameError
	case err != nil:
		s.log.ErrorContext(ctx, "cannot look up an address", "err", err)
		return failure(q, dnsmessage.RCodeServerFailure)
	case q.question.Type == dnsmessage.TypePTR:
		target, err := dnsmessage.NewName(host + ".")
		if err != nil {
			s.log.ErrorContext(ctx, "cannot encode a name", "err", err)
			return failure(q, dnsmessage.RCodeServerFailure)
		}
		answer(m, &dnsmessage.PTRResource{PTR: target})
		return m
	}
	m.Authorities = authority(s.zone)
	return m
}

// forward asks the resolvers, one after the other.
func (s *Server) forward(ctx context.Context, q query) *dnsmessage.Message {
	if s.opts.Resolvers == nil {
		return failure(q, dnsmessage.RCodeRefused)
	}
	servers, err := s.opts.Resolvers()
	if err != nil {
		s.log.WarnContext(ctx, "cannot find the machine's resolvers", "err", err)
	}
	for _, server := range servers {
		answer, asked := exchange(ctx, q.question, server)
		if asked == nil && answer.RCode != dnsmessage.RCodeServerFailure && answer.RCode != dnsmessage.RCodeRefused {
			m := failure(q, answer.RCode)
			m.Answers = slices.DeleteFunc(answer.Answers, s.leadsIntoMesh)
			m.Authorities = answer.Authorities
			return m
		}
		err = errors.Join(err, asked)
	}
	s.log.DebugContext(ctx, "no resolver answers", "err", err)
	return failure(q, dnsmessage.RCodeServerFailure)
}

// leadsIntoMesh reports whether a record of a resolver's answer would lead programs into the mesh.
func (s *Server) leadsIntoMesh(rr dnsmessage.Resource) bool {
	service := func(r dnsmessage.SVCBResource) bool {
		hint, _ := r.GetParam(dnsmessage.SVCParamIPv6Hint)
		for ip := range slices.Chunk(hint, 16) {
			if s.inMesh(ip) {
				return true
			}
		}
		return ownName(r.Target.String())
	}
	switch body := rr.Body.(type) {
	case *dnsmessage.AAAAResource:
		return s.inMesh(body.AAAA[:])
	case *dnsmessage.CNAMEResource:
		return ownName(body.CNAME.String())
	case *dnsmessage.SRVResource:
		return ownName(body.Target.String())
	case *dnsmessage.SVCBResource:
		return service(*body)
	case *dnsmessage.HTTPSResource:
		return service(body.SVCBResource)
	}
	return rr.Header.Type == typeDNAME // which always comes with the CNAME that it means for this name
}

// typeDNAME is the type of records that rename all names below one (RFC 6672).
const typeDNAME dnsmessage.Type = 39

func (s *Server) inMesh(ip []byte) bool {
	addr, ok := netip.AddrFromSlice(ip)
	return ok && s.opts.Prefix.Contains(addr)
}

// zoneOfNames is the zone that has the names of workspaces.
const zoneOfNames = hostname.Domain + "."

// ownName reports whether a name is below coder.
func ownName(name string) bool { return within(name, zoneOfNames) }

// within reports whether a name is a zone's, or below it.
func within(name, zone string) bool {
	cut := len(name) - len(zone)
	return cut >= 0 && strings.EqualFold(name[cut:], zone) && (cut == 0 || name[cut-1] == '.')
}

// answer adds what was asked for.
func answer(m *dnsmessage.Message, body dnsmessage.ResourceBody) {
	q := m.Questions[0]
	m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(q.Name, nameTTL), Body: body})
}

func header(name dnsmessage.Name, ttl uint32) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl}
}

// authority returns what says for how long a name does not exist (RFC 2308).
func authority(zone string) []dnsmessage.Resource {
	return []dnsmessage.Resource{{Header: header(dnsmessage.MustNewName(zone), noneTTL), Body: &dnsmessage.SOAResource{
		NS: dnsmessage.MustNewName(zone), MBox: dnsmessage.MustNewName("hostmaster." + zone),
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, MinTTL: noneTTL,
	}}}
}

// explain adds a reason for people to an answer (RFC 8914): the code of other reasons, 0, and a text.
func explain(m *dnsmessage.Message, reason string) {
	const extendedError = 15
	setOptions(m, dnsmessage.Option{Code: extendedError, Data: append([]byte{0, 0}, reason...)})
}

// ReverseZone returns the name below which the addresses of an IPv6 prefix are, whose length is a multiple of 4.
func ReverseZone(p netip.Prefix) string {
	name := reverseName(p.Addr())
	return name[2*(32-p.Bits()/4):]
}

// reverseName returns the name of an IPv6 address (RFC 3596): its digits, the last one first.
func reverseName(addr netip.Addr) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	ip := addr.As16()
	for _, octet := range slices.Backward(ip[:]) {
		b.Write([]byte{digits[octet&15], '.', digits[octet>>4], '.'})
	}
	return b.String() + "ip6.arpa."
}

// meshAddr returns the address of the mesh that a name below ip6.arpa is about. ok is false for other names, and the
// address is invalid for names of the zone that are no full address.
func (s *Server) meshAddr(name string) (addr netip.Addr, ok bool) {
	if !within(name, s.zone) {
		return addr, false
	}
	labels := strings.Split(name, ".")
	if len(labels) != 35 { // 32 digits, ip6, arpa and the root
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
