package mail

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzEncode checks that no text adds a header, a recipient or a part, and that texts arrive as they are.
func FuzzEncode(f *testing.F) {
	f.Add("Ann", "Workspace \"dev\" deleted", "Hello\n", "<p>Hello</p>")
	f.Add("Ann\r\nBcc: eve@example.com", "x\r\nBcc: eve@example.com\r\n\r\nbody", "\r\n.\r\nQUIT", "</html>")
	f.Add("Ann <eve@example.com>,", "=?utf-8?q?x?=\x00\u2028", "--boundary\r\n", strings.Repeat("ä", 600))
	s, err := New(Config{From: "Coder <coder@example.com>", Smarthost: "127.0.0.1:25"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, subject, text, html string) {
		data, err := s.encode(Message{ID: "1", To: netmail.Address{Name: name, Address: "ann@example.com"}, Subject: subject, Text: text, HTML: html, Date: time.Unix(0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		m, err := netmail.ReadMessage(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
		want := []string{"Auto-Submitted", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To"}
		if html == "" {
			want = slices.Insert(want, 1, "Content-Transfer-Encoding")
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(m.Header))); diff != "" {
			t.Fatalf("headers (-want +got):\n%s", diff)
		}
		to, err := m.Header.AddressList("To")
		if err != nil || len(to) != 1 || to[0].Address != "ann@example.com" {
			t.Fatalf("recipients %v: %v", to, err)
		}
		parts := []io.Reader{quotedprintable.NewReader(m.Body)}
		if html != "" {
			_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
			if err != nil {
				t.Fatal(err)
			}
			parts = nil
			for r := multipart.NewReader(m.Body, params["boundary"]); ; {
				p, err := r.NextPart()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(p)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, bytes.NewReader(body))
			}
			if len(parts) != 2 {
				t.Fatalf("%d parts", len(parts))
			}
		}
		body, err := io.ReadAll(parts[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.ContainsAny(text, "\r\n") && !bytes.Contains(body, []byte(text)) {
			t.Fatalf("%q became %q", text, body)
		}
	})
}

// TestRecipients checks that an address that is not exactly one address is refused.
func TestRecipients(t *testing.T) {
	t.Parallel()
	s, err := New(Config{From: "coder@example.com", Smarthost: "127.0.0.1:25"})
	if err != nil {
		t.Fatal(err)
	}
	for address, good := range map[string]bool{
		"ann@example.com": true, "ann+tag@example.com": true,
		"": false, "ann": false, "ann@example.com, eve@example.com": false, "ann@example.com\r\nRCPT TO:<eve@example.com>": false, "Ann <ann@example.com>": false,
	} {
		if _, err := s.encode(Message{To: netmail.Address{Address: address}}); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
