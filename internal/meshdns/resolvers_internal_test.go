package meshdns

import (
	"net"
	"slices"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"
)

func TestResolvers(t *testing.T) {
	t.Parallel()
	got := resolvers("# nameserver 192.0.2.9\nnameserver 192.0.2.1\r\nsearch example.com\n" +
		" nameserver fe80::1%eth0 # ours\nnameserver\noptions rotate")
	if want := []string{"192.0.2.1:53", "[fe80::1%eth0]:53"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestExchange: only the answer to the question counts, and records that cannot be read are left out of it.
func TestExchange(t *testing.T) {
	t.Parallel()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	record := func(text string) dns.RR {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Error(err)
		}
		return rr
	}
	go func() {
		buf := make([]byte, 2000)
		n, from, err := socket.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dns.Msg
		if err := q.Unpack(buf[:n]); err != nil {
			t.Error(err)
			return
		}
		send := func(change func(*dns.Msg)) {
			m := new(dns.Msg).SetReply(&q)
			change(m)
			packed, err := m.Pack()
			if err != nil {
				t.Error(err)
			}
			_, _ = socket.WriteTo(packed, from)
		}
		wrong := record("example.com. 60 IN AAAA 2001:db8::bad")
		send(func(m *dns.Msg) { m.Id++; m.Answer = []dns.RR{wrong} })
		send(func(m *dns.Msg) { m.Question[0].Name = "example.org."; m.Answer = []dns.RR{wrong} })
		send(func(m *dns.Msg) { m.Response = false; m.Answer = []dns.RR{wrong} })
		_, _ = socket.WriteTo(buf[:5], from)
		send(func(m *dns.Msg) {
			m.Answer = []dns.RR{
				record(`a\.b.example.com. 60 IN AAAA 2001:db8::2`),
				record("example.com. 60 IN AAAA 2001:db8::1"),
				record(`example.com. 60 IN URI 1 1 "x"`),
			}
			m.Ns = []dns.RR{
				record(`example.com. 60 IN SOA ns.example.com. first\.last.example.com. 1 2 3 4 5`),
				record("example.com. 60 IN NS ns.example.com."),
			}
		})
	}()
	m, err := exchange(t.Context(), askFor("example.com."), socket.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Answers) != 2 || m.Answers[0].Body.(*dnsmessage.AAAAResource).AAAA[15] != 1 || len(m.Authorities) != 1 {
		t.Errorf("the answer is %s", m.GoString())
	}
	if packed, err := m.Pack(); err != nil || new(dns.Msg).Unpack(packed) != nil {
		t.Errorf("it becomes %q, %v", packed, err)
	}
}

func askFor(name string) dnsmessage.Question {
	return dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET}
}

// FuzzParseAnswer: what a resolver answers, whatever it is, can be passed on.
func FuzzParseAnswer(f *testing.F) {
	ask := &dnsmessage.Message{Questions: []dnsmessage.Question{askFor("a.")}}
	for _, text := range []string{
		"a. 60 IN AAAA 2001:db8::1", `a. 60 IN HTTPS 1 b. alpn="h2" ipv6hint="2001:db8::1"`, "a. 60 IN TXT x",
		"a. 60 IN CNAME b.", `a\.a. 60 IN A 192.0.2.1`,
	} {
		rr, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		q := new(dns.Msg).SetQuestion("a.", dns.TypeAAAA)
		q.Id = 0
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{rr}
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	s := New(Options{Prefix: prefix})
	f.Fuzz(func(t *testing.T, message []byte) {
		m, err := parseAnswer(ask, message)
		if err != nil {
			return
		}
		m.Answers = slices.DeleteFunc(m.Answers, s.leadsIntoMesh)
		if _, err := m.Pack(); err != nil {
			t.Errorf("%x cannot be passed on: %v", message, err)
		}
	})
}
