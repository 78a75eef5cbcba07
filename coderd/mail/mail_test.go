package mail_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"mime"
	"net"
	netmail "net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/mail"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is a mail that the server took.
type received struct {
	from, to string
	data     []byte
	user     string // authenticated as
	tls      bool
}

// server is a mail server of a test.
type server struct {
	got        chan received
	mechanisms []string
	refuse     *smtp.SMTPError // the answer to RCPT
	drop       bool            // closes the connection instead of accepting a message
	passwords  chan string     // every password that arrived
}

type session struct {
	*server
	conn *smtp.Conn
	received
}

func (s *server) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &session{server: s, conn: c}, nil
}

func (s *session) AuthMechanisms() []string { return s.mechanisms }

func (s *session) check(user, password string) error {
	s.passwords <- password
	if password != "secret" {
		return smtp.ErrAuthFailed
	}
	s.user = user
	return nil
}

func (s *session) Auth(mech string) (sasl.Server, error) {
	if mech == sasl.Plain {
		return sasl.NewPlainServer(func(_, user, password string) error { return s.check(user, password) }), nil
	}
	return &loginServer{check: s.check}, nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error { s.from = from; return nil }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if s.refuse != nil {
		return s.refuse
	}
	s.to = to
	return nil
}

func (s *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if s.drop {
		return s.conn.Conn().Close()
	}
	s.data = data
	_, s.tls = s.conn.TLSConnectionState()
	s.got <- s.received
	return nil
}
func (s *session) Reset()        {}
func (s *session) Logout() error { return nil }

// loginServer is the server's side of LOGIN.
type loginServer struct {
	check func(user, password string) error
	step  int
	user  string
}

func (l *loginServer) Next(response []byte) ([]byte, bool, error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

// certificate makes a certificate for 127.0.0.1 and returns a file with it.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"mail.example.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

// start serves SMTP. With a certificate it offers STARTTLS, or TLS from the first byte.
func (s *server) start(t *testing.T, cert *tls.Certificate, implicit bool) string {
	t.Helper()
	s.got, s.passwords = make(chan received, 10), make(chan string, 10)
	x := smtp.NewServer(s)
	x.Domain, x.AllowInsecureAuth, x.ErrorLog = "mail.example.com", true, discard{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if cert != nil {
		cfg := &tls.Config{Certificates: []tls.Certificate{*cert}}
		if implicit {
			l = tls.NewListener(l, cfg)
		} else {
			x.TLSConfig = cfg
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = x.Serve(l) }()
	t.Cleanup(func() { _ = x.Close(); <-done })
	return addr
}

type discard struct{}

func (discard) Printf(string, ...any) {}
func (discard) Println(...any)        {}

func send(t *testing.T, cfg mail.Config, m mail.Message) error {
	t.Helper()
	if cfg.From == "" {
		cfg.From = "Coder <coder@example.com>"
	}
	s, err := mail.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if m.To.Address == "" {
		m.To.Address = "ann@example.com"
	}
	return s.Send(ctx, m)
}

// TestSend checks every way to a server that is configured well.
func TestSend(t *testing.T) {
	t.Parallel()
	cert, ca := certificate(t)
	for name, c := range map[string]struct {
		cfg        mail.Config
		cert       *tls.Certificate
		implicit   bool
		mechanisms []string
		user       string
		tls        bool
	}{
		"plain text":        {},
		"STARTTLS":          {cfg: mail.Config{StartTLS: true, CAFile: ca}, cert: &cert, tls: true},
		"offered STARTTLS":  {cfg: mail.Config{CAFile: ca, Hello: "coder.example.com"}, cert: &cert, tls: true},
		"TLS":               {cfg: mail.Config{ForceTLS: true, CAFile: ca}, cert: &cert, implicit: true, tls: true},
		"another name":      {cfg: mail.Config{ForceTLS: true, CAFile: ca, ServerName: "mail.example.com"}, cert: &cert, implicit: true, tls: true},
		"any certificate":   {cfg: mail.Config{ForceTLS: true, SkipVerify: true}, cert: &cert, implicit: true, tls: true},
		"PLAIN":             {cfg: mail.Config{StartTLS: true, CAFile: ca, Username: "coder", Password: "secret"}, cert: &cert, mechanisms: []string{"PLAIN", "LOGIN"}, user: "coder", tls: true},
		"LOGIN":             {cfg: mail.Config{StartTLS: true, CAFile: ca, Username: "coder", Password: "secret"}, cert: &cert, mechanisms: []string{"LOGIN"}, user: "coder", tls: true},
		"PLAIN on loopback": {cfg: mail.Config{Username: "coder", Password: "secret"}, mechanisms: []string{"PLAIN"}, user: "coder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{mechanisms: c.mechanisms}
			c.cfg.Smarthost = s.start(t, c.cert, c.implicit)
			err := send(t, c.cfg, mail.Message{
				ID: "5", To: netmail.Address{Name: "Änn", Address: "ann@example.com"}, Subject: "Größe", Text: "Hello, Änn.", HTML: "<p>Hello</p>", Date: time.Unix(0, 0),
			})
			if err != nil {
				t.Fatal(err)
			}
			got := <-s.got
			if got.from != "coder@example.com" || got.to != "ann@example.com" || got.user != c.user || got.tls != c.tls {
				t.Errorf("from %q, to %q, user %q, TLS %v", got.from, got.to, got.user, got.tls)
			}
			m, err := netmail.ReadMessage(bytes.NewReader(got.data))
			if err != nil {
				t.Fatal(err)
			}
			subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
			if err != nil || subject != "Größe" || m.Header.Get("Message-ID") != "<5@example.com>" {
				t.Errorf("subject %q, id %q: %v", subject, m.Header.Get("Message-ID"), err)
			}
			if body, _ := io.ReadAll(m.Body); !strings.Contains(string(body), "Hello, =C3=84nn.") || !strings.Contains(string(body), "<p>Hello</p>") {
				t.Errorf("body:\n%s", body)
			}
		})
	}
}

// TestPasswordNeedsTLS checks that a server without TLS, or with another certificate, gets neither a password nor a message when TLS is
// required.
func TestPasswordNeedsTLS(t *testing.T) {
	t.Parallel()
	cert, _ := certificate(t)
	_, otherCA := certificate(t)
	for name, c := range map[string]struct {
		cfg  mail.Config
		cert *tls.Certificate
		want string
	}{
		"STARTTLS is required and not offered": {mail.Config{StartTLS: true}, nil, "does not offer STARTTLS"},
		"TLS is forced and not spoken":         {mail.Config{ForceTLS: true}, nil, "connect to"},
		"the certificate is another's":         {mail.Config{StartTLS: true, CAFile: otherCA}, &cert, "start TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{mechanisms: []string{"PLAIN"}}
			c.cfg.Smarthost, c.cfg.Username, c.cfg.Password = s.start(t, c.cert, false), "coder", "secret"
			err := send(t, c.cfg, mail.Message{ID: "1", Subject: "x", Text: "x"})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if len(s.passwords) != 0 || len(s.got) != 0 {
				t.Errorf("%d passwords and %d messages arrived", len(s.passwords), len(s.got))
			}
		})
	}
}

// TestRefusals checks which failures are final.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server server
		final  bool
	}{
		"no such mailbox":      {server{refuse: &smtp.SMTPError{Code: 550, Message: "no such user"}}, true},
		"mailbox is full":      {server{refuse: &smtp.SMTPError{Code: 452, Message: "full"}}, false},
		"closes in the middle": {server{drop: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &c.server
			err := send(t, mail.Config{Smarthost: s.start(t, nil, false)}, mail.Message{ID: "1", Subject: "x", Text: "x"})
			_, final := errors.AsType[*mail.Refused](err)
			if err == nil || final != c.final {
				t.Errorf("error %v, final %v, want %v", err, final, c.final)
			}
		})
	}
	s := &server{mechanisms: []string{"PLAIN"}}
	if err := send(t, mail.Config{Smarthost: s.start(t, nil, false), Username: "coder", Password: "wrong"}, mail.Message{ID: "1", Text: "x"}); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestSilentServer checks that a server that never answers does not hold a message longer than its context.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	s, err := mail.New(mail.Config{Smarthost: l.Addr().String(), From: "coder@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Send(ctx, mail.Message{ID: "1", To: netmail.Address{Address: "ann@example.com"}}) }()
	conn := <-accepted
	defer conn.Close()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestConfigurations(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]mail.Config{
		"--email-smarthost":            {From: "a@b.c", Smarthost: "example.com"},
		"--email-from":                 {From: "a@b.c\r\nBcc: d@e.f", Smarthost: "example.com:25"},
		"--email-hello":                {From: "a@b.c", Smarthost: "example.com:25", Hello: "x\r\nRCPT"},
		"--email-auth-username":        {From: "a@b.c", Smarthost: "example.com:25", Password: "x"},
		"--email-tls-ca-cert-file":     {From: "a@b.c", Smarthost: "example.com:25", CAFile: "/nothing/here"},
		"--email-tls-cert-file and":    {From: "a@b.c", Smarthost: "example.com:25", CertFile: "x"},
		"--email-tls-cert-file cannot": {From: "a@b.c", Smarthost: "example.com:25", CertFile: "/nothing/a", KeyFile: "/nothing/b"},
	} {
		if _, err := mail.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", cfg, err, want)
		}
	}
}
