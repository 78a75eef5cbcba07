package meshdns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// maxMessage bounds a resolver's answer, in bytes.
const maxMessage = 1<<16 - 1

// SystemResolvers returns the name servers of the machine's resolver configuration.
func SystemResolvers() ([]string, error) { return Resolvers("/etc/resolv.conf") }

// Resolvers returns the name servers of a resolver configuration (resolv.conf(5)) in a file, as HOST:PORT.
func Resolvers(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return resolvers(string(text)), nil
}

func resolvers(config string) (servers []string) {
	for line := range strings.Lines(config) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			servers = append(servers, net.JoinHostPort(fields[1], strconv.Itoa(Port)))
		}
	}
	return servers
}

// exchange asks one resolver, over TCP if the answer over UDP is cut.
func exchange(ctx context.Context, question dnsmessage.Question, server string) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	// The asker's own id and options are not the resolver's business.
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails
	ask := &dnsmessage.Message{
		Header:    dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true},
		Questions: []dnsmessage.Question{question},
	}
	setOptions(ask)
	packed, err := ask.Pack()
	if err != nil {
		return nil, err
	}
	answer, err := exchangeOver(ctx, "udp", server, ask, packed)
	if err == nil && answer.Truncated {
		answer, err = exchangeOver(ctx, "tcp", server, ask, packed)
	}
	return answer, err
}

// exchangeOver asks a resolver over one network.
func exchangeOver(
	ctx context.Context, network, server string, ask *dnsmessage.Message, packed []byte,
) (*dnsmessage.Message, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if network == "tcp" {
		if err := writeTCP(conn, packed); err != nil {
			return nil, err
		}
		message, err := readTCP(conn, maxMessage)
		if err != nil {
			return nil, err
		}
		return parseAnswer(ask, message)
	}
	if _, err := conn.Write(packed); err != nil {
		return nil, err
	}
	buf := make([]byte, maxMessage)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if answer, err := parseAnswer(ask, buf[:n]); err == nil {
			return answer, nil // else someone else has sent it, or it comes late
		}
	}
}

// parseAnswer reads the answer to a question. It omits records that it cannot read.
func parseAnswer(ask *dnsmessage.Message, message []byte) (*dnsmessage.Message, error) {
	var p dnsmessage.Parser
	var m dnsmessage.Message
	var err error
	if m.Header, err = p.Start(message); err != nil {
		return nil, err
	}
	if m.Questions, err = p.AllQuestions(); err != nil {
		return nil, err
	}
	if !m.Response || m.ID != ask.ID || len(m.Questions) != 1 || !sameQuestion(m.Questions[0], ask.Questions[0]) {
		return nil, errors.New("not the answer to the question")
	}
	if m.Answers, err = records(&p, (*dnsmessage.Parser).Answer, (*dnsmessage.Parser).SkipAnswer); err != nil {
		return nil, err
	}
	m.Authorities, err = records(&p, (*dnsmessage.Parser).Authority, (*dnsmessage.Parser).SkipAuthority)
	return &m, err
}

func sameQuestion(a, b dnsmessage.Question) bool {
	return a.Type == b.Type && a.Class == b.Class && strings.EqualFold(a.Name.String(), b.Name.String())
}

// records reads a section.
func records(
	p *dnsmessage.Parser, next func(*dnsmessage.Parser) (dnsmessage.Resource, error),
	skip func(*dnsmessage.Parser) error,
) (all []dnsmessage.Resource, err error) {
	for {
		before := *p
		rr, err := next(p)
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return all, nil
		}
		if err == nil {
			all = append(all, rr)
			continue
		}
		*p = before
		if err := skip(p); err != nil {
			return nil, err
		}
	}
}
