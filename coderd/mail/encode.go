package mail

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"net/textproto"
	"strings"
	"time"
	"unicode"
)

// encode returns the message as it travels (RFC 5322, RFC 2045), with CRLF line ends.
func (s *Sender) encode(m Message) ([]byte, error) {
	to, err := netmail.ParseAddress(m.To.Address) // a line break or a list would address others
	if err != nil || to.Address != m.To.Address {
		return nil, fmt.Errorf("the recipient's address %q is invalid", m.To.Address)
	}
	from := s.from
	from.Name = line(from.Name)
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	recipient := netmail.Address{Name: line(m.To.Name), Address: to.Address}
	var b bytes.Buffer
	header := func(name, value string) { b.WriteString(name + ": " + value + "\r\n") }
	header("Date", m.Date.Format(time.RFC1123Z))
	header("Message-ID", "<"+line(m.ID)+"@"+domain+">")
	header("From", from.String())
	header("To", recipient.String())
	header("Subject", mime.QEncoding.Encode("utf-8", line(m.Subject)))
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	if m.HTML == "" {
		header("Content-Type", "text/plain; charset=utf-8")
		header("Content-Transfer-Encoding", "quoted-printable")
		b.WriteString("\r\n")
		err := quoted(&b, m.Text)
		return b.Bytes(), err
	}
	parts := multipart.NewWriter(&b)
	header("Content-Type", mime.FormatMediaType("multipart/alternative", map[string]string{
		"boundary": parts.Boundary(),
	}))
	b.WriteString("\r\n")
	for _, part := range []struct{ kind, text string }{{"text/plain", m.Text}, {"text/html", m.HTML}} {
		w, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {part.kind + "; charset=utf-8"}, "Content-Transfer-Encoding": {"quoted-printable"}})
		if err != nil {
			return nil, err
		}
		if err := quoted(w, part.text); err != nil {
			return nil, err
		}
	}
	if err := parts.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func quoted(to io.Writer, text string) error {
	w := quotedprintable.NewWriter(to)
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	return w.Close()
}

// line makes text fit into one line: control characters become spaces.
func line(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd")))
}
