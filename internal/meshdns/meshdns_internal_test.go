package meshdns

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

var (
	prefix    = netip.MustParsePrefix("fd3b:8e1f:47c2::/48")
	workspace = netip.MustParseAddr("fd3b:8e1f:47c2::7")
)

// one is a directory with one workspace.
type one struct{}

func (one) Find(_ context.Context, name string) (netip.Addr, error) {
	if name == "dev" || name == "ada/dev" || name == "ada/dev.main" {
		return workspace, nil
	}
	return netip.Addr{}, fault.New(fault.NotFound, "There is none.")
}

func (one) Host(_ context.Context, addr netip.Addr) (string, error) {
	if addr == workspace {
		return "main.dev.ada.coder", nil
	}
	return "", fault.New(fault.NotFound, "There is none.")
}

// TestAnswers: names and addresses of workspaces are answered, and others do not exist. Who is in no directory is refused.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := New(Options{Prefix: prefix})
	back, err := dns.ReverseAddr(workspace.String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := dns.ReverseAddr(prefix.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		kind uint16
		dir  Directory
		code int
		want string // the end of the answer, empty for none
	}{
		{"dev.coder.", dns.TypeAAAA, one{}, dns.RcodeSuccess, workspace.String()},
		{"MAIN.dev.ada.Coder.", dns.TypeAAAA, one{}, dns.RcodeNameError, ""}, // the directory decides about case
		{"main.dev.ada.coder.", dns.TypeAAAA, one{}, dns.RcodeSuccess, workspace.String()},
		{"dev.coder.", dns.TypeA, one{}, dns.RcodeSuccess, ""},
		{"dev.bob.coder.", dns.TypeAAAA, one{}, dns.RcodeNameError, ""},
		{"coder.", dns.TypeAAAA, one{}, dns.RcodeSuccess, ""},
		{back, dns.TypePTR, one{}, dns.RcodeSuccess, "main.dev.ada.coder."},
		{other, dns.TypePTR, one{}, dns.RcodeNameError, ""},
		{"example.com.", dns.TypeA, one{}, dns.RcodeRefused, ""},
		{"dev.coder.", dns.TypeAAAA, nil, dns.RcodeRefused, ""},
	} {
		packed, err := new(dns.Msg).SetQuestion(c.name, c.kind).Pack()
		if err != nil {
			t.Fatal(err)
		}
		var m dns.Msg
		if err := m.Unpack(s.Answer(t.Context(), c.dir, packed, false)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(m.Answer) > 0 {
			fields := strings.Fields(m.Answer[0].String())
			got = fields[len(fields)-1]
		}
		if m.Rcode != c.code || got != c.want {
			t.Errorf("%s %s: %s %q, want %s %q", c.name, dns.TypeToString[c.kind], dns.RcodeToString[m.Rcode], got, dns.RcodeToString[c.code], c.want)
		}
	}
}

// TestOtherMessages: what cannot be read is refused, and bytes that no name of a workspace has find none.
func TestOtherMessages(t *testing.T) {
	t.Parallel()
	s := New(Options{Prefix: prefix})
	pack := func(name string) []byte {
		packed, err := new(dns.Msg).SetQuestion(name, dns.TypeAAAA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	none := pack("dev.coder.")
	none[5] = 0 // questions
	two := append(append(append([]byte{}, pack("dev.coder.")...), pack("dev.coder.")[12:]...), 0)
	two[5] = 2
	records := pack("dev.coder.")
	records[11] = 1 // an additional record, which is not there
	for _, c := range []struct {
		message []byte
		code    int
	}{
		{pack(`d\.ev.coder.`), dns.RcodeFormatError}, {pack(`dev\000.coder.`), dns.RcodeNameError},
		{pack(`d\032v.coder.`), dns.RcodeNameError}, {pack(`d\255v.coder.`), dns.RcodeNameError},
		{none, dns.RcodeRefused}, {two, dns.RcodeRefused}, {records, dns.RcodeFormatError},
	} {
		var m dns.Msg
		err := m.Unpack(s.Answer(t.Context(), every{}, c.message, false))
		if err != nil || m.Rcode != c.code || len(m.Answer) > 0 {
			t.Errorf("%q is answered with\n%s\n%v", c.message, &m, err)
		}
	}
	answer := pack("dev.coder.")
	answer[2] |= 0x80
	for _, message := range [][]byte{answer, none[:11], nil} {
		if got := s.Answer(t.Context(), every{}, message, false); got != nil {
			t.Errorf("%q is answered with %q", message, got)
		}
	}
}

// every is a directory in which each name has an address.
type every struct{ one }

func (every) Find(context.Context, string) (netip.Addr, error) { return workspace, nil }

func TestMeshAddr(t *testing.T) {
	t.Parallel()
	s := New(Options{Prefix: prefix})
	name, err := dns.ReverseAddr(workspace.String())
	if err != nil {
		t.Fatal(err)
	}
	if addr, ok := s.meshAddr(strings.ToUpper(name)); !ok || addr != workspace {
		t.Errorf("%s is about %s, %v", name, addr, ok)
	}
	for name, ours := range map[string]bool{
		name[2:]: true, s.zone: true, "xy" + name[1:]: true, "g" + name[1:]: true, "1." + name: true,
		"example.com.": false, "ip6.arpa.": false, "1.0.0.127.in-addr.arpa.": false, "x" + s.zone: false,
	} {
		if addr, ok := s.meshAddr(name); ok != ours || addr.IsValid() {
			t.Errorf("%s is about %s, %v", name, addr, ok)
		}
	}
}

// FuzzAnswer checks that any message can be asked, and that what comes back is a message that fits into a packet, with the question's id.
func FuzzAnswer(f *testing.F) {
	s := New(Options{Prefix: prefix})
	for _, name := range []string{"dev.coder.", "example.com.", s.zone, "."} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeAAAA)
		m.SetEdns0(4096, true)
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		answer := s.Answer(t.Context(), one{}, message, false)
		if answer == nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if len(answer) > MaxAnswer || !m.Response || answer[0] != message[0] || answer[1] != message[1] {
			t.Errorf("%x is answered with %x", message, answer)
		}
	})
}
