// Package mail sends messages to an SMTP server: it owns the connection, TLS, authentication and the encoding of
// messages. It knows neither users nor why a message is sent.
//
// A password is sent only over TLS, or to a server on this machine. Text from users cannot add headers or recipients:
// it is encoded, and control characters become spaces.
package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/smtp"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Config says which server mail goes to. Smarthost and From are required.
type Config struct {
	// From is the sender: an address, or a name and an address ("Coder <coder@example.com>").
	From string
	// Smarthost is the server's host and port.
	Smarthost string
	// Hello is the name by which this server introduces itself. Empty means "localhost".
	Hello string
	// ForceTLS uses TLS from the first byte, as servers on port 465 expect.
	ForceTLS bool
	// StartTLS refuses servers that do not offer STARTTLS. Otherwise it is used if it is offered, or if there is a
	// password.
	StartTLS bool
	// ServerName is the name in the server's certificate. Empty means the host of Smarthost.
	ServerName string
	// SkipVerify accepts any certificate.
	SkipVerify bool
	// CAFile has the PEM certificates of authorities to trust instead of the system's.
	CAFile string
	// CertFile and KeyFile have a client certificate and its key, in PEM. Both or none.
	CertFile, KeyFile string
	// Identity, Username and Password authenticate with PLAIN, or with LOGIN if the server does not offer that. An
	// empty Username means no authentication.
	Identity, Username string
	Password           secret.Token
}

// Message is one mail to one recipient.
type Message struct {
	// ID identifies the message. Receivers recognize a message that was sent twice by it.
	ID            string
	To            netmail.Address
	Subject, Text string
	HTML          string // empty: plain text only
	Date          time.Time
}

// Sender sends mail. Safe for concurrent use.
type Sender struct {
	cfg  Config
	host string
	from netmail.Address
	tls  *tls.Config
}

// New checks the configuration and reads its files. Its faults name the option that is wrong.
func New(cfg Config) (*Sender, error) {
	s := &Sender{cfg: cfg}
	host, port, err := net.SplitHostPort(cfg.Smarthost)
	if n, portErr := strconv.Atoi(port); err != nil || host == "" || portErr != nil || n < 1 || n > 65535 {
		return nil, fault.New(fault.Invalid, "--email-smarthost %q must be a host and a port", cfg.Smarthost).
			WithDetail("It looks like smtp.example.com:587.")
	}
	s.host = host
	from, err := netmail.ParseAddress(cfg.From)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--email-from %q must be an email address", cfg.From).
			WithDetail("It looks like coder@example.com.")
	}
	s.from = *from
	if strings.ContainsAny(cfg.Hello, " \r\n\t") {
		return nil, fault.New(fault.Invalid, "--email-hello %q must be a host name", cfg.Hello)
	}
	if cfg.Username == "" && (cfg.Password != "" || cfg.Identity != "") {
		return nil, fault.New(fault.Invalid, "--email-auth-username is missing")
	}
	s.tls = &tls.Config{
		ServerName: cfg.ServerName, InsecureSkipVerify: cfg.SkipVerify, MinVersion: tls.VersionTLS12,
	} //nolint:gosec // the operator's choice
	if s.tls.ServerName == "" {
		s.tls.ServerName = host
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fault.New(fault.Invalid, "--email-tls-ca-cert-file cannot be read: %w", err)
		}
		s.tls.RootCAs = x509.NewCertPool()
		if !s.tls.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fault.New(fault.Invalid, "--email-tls-ca-cert-file %s contains no PEM certificate", cfg.CAFile)
		}
	}
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, fault.New(fault.Invalid, "--email-tls-cert-file and --email-tls-cert-key-file must be set together")
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fault.New(fault.Invalid, "--email-tls-cert-file cannot be used: %w", err)
		}
		s.tls.Certificates = []tls.Certificate{pair}
	}
	return s, nil
}

// Refused is the error of a message that the server will not accept at a later time either.
type Refused struct{ err error }

// Refuse returns err as a *Refused.
func Refuse(err error) error { return &Refused{err} }

func (e *Refused) Error() string { return e.err.Error() }
func (e *Refused) Unwrap() error { return e.err }

// Send delivers a message to the server. It blocks until the server has taken responsibility for the message, or ctx
// ends. The error is a *Refused if trying again is pointless.
func (s *Sender) Send(ctx context.Context, m Message) error {
	data, err := s.encode(m)
	if err != nil {
		return Refuse(err)
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Ends whatever waits for the server.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := s.transfer(conn, m.To.Address, data); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s did not answer in time: %w", s.cfg.Smarthost, ctx.Err())
		}
		return err
	}
	return nil
}

func (s *Sender) dial(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	var err error
	if s.cfg.ForceTLS {
		conn, err = (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.cfg.Smarthost)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.cfg.Smarthost)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.cfg.Smarthost, err)
	}
	return conn, nil
}

// transfer carries a message over a connection.
func (s *Sender) transfer(conn net.Conn, to string, data []byte) error {
	client, err := smtp.NewClient(conn, s.host)
	if err != nil {
		return fmt.Errorf("greet %s: %w", s.cfg.Smarthost, err)
	}
	if err := s.open(client); err != nil {
		return err
	}
	if err := client.Mail(s.from.Address); err != nil {
		return fmt.Errorf("the mail server refuses the sender: %w", err)
	}
	if err := client.Rcpt(to); err != nil {
		err = fmt.Errorf("the mail server refuses the recipient: %w", err)
		if permanent(err) {
			return Refuse(err)
		}
		return err
	}
	w, err := client.Data()
	if err != nil {
		return fmt.Errorf("the mail server refuses the message: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("the mail server did not accept the message: %w", err)
	}
	// The message is the server's now, whatever becomes of the connection.
	_ = client.Quit()
	return nil
}

// open introduces, encrypts and authenticates.
func (s *Sender) open(client *smtp.Client) error {
	if s.cfg.Hello != "" {
		if err := client.Hello(s.cfg.Hello); err != nil {
			return fmt.Errorf("greet %s: %w", s.cfg.Smarthost, err)
		}
	}
	offered, _ := client.Extension("STARTTLS")
	switch {
	case s.cfg.ForceTLS:
	case offered:
		if err := client.StartTLS(s.tls); err != nil {
			return fmt.Errorf("start TLS with %s: %w", s.cfg.Smarthost, err)
		}
	case s.cfg.StartTLS:
		return fmt.Errorf("%s does not offer STARTTLS", s.cfg.Smarthost)
	}
	if s.cfg.Username == "" {
		return nil
	}
	if _, encrypted := client.TLSConnectionState(); !encrypted && !isLoopback(s.host) {
		return fmt.Errorf("%s does not offer STARTTLS, and a password is not sent without TLS", s.cfg.Smarthost)
	}
	if err := client.Auth(s.auth(client)); err != nil {
		return fmt.Errorf("authenticate at %s as %s: %w", s.cfg.Smarthost, s.cfg.Username, err)
	}
	return nil
}

// auth returns the mechanism that the server prefers of those that are possible.
func (s *Sender) auth(client *smtp.Client) smtp.Auth {
	_, offered := client.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	for _, name := range mechanisms {
		if name == "PLAIN" {
			return plain{s.cfg}
		}
	}
	return &login{cfg: s.cfg}
}

// plain is the mechanism PLAIN. The one of net/smtp refuses servers on this machine that are not named localhost.
type plain struct{ cfg Config }

func (p plain) Start(*smtp.ServerInfo) (string, []byte, error) {
	return "PLAIN", []byte(p.cfg.Identity + "\x00" + p.cfg.Username + "\x00" + p.cfg.Password.Reveal()), nil
}

func (plain) Next(_ []byte, more bool) ([]byte, error) {
	if more {
		return nil, errors.New("the server asks for more than PLAIN has")
	}
	return nil, nil
}

// login is the mechanism LOGIN: the server asks for the name, then for the password.
type login struct {
	cfg   Config
	asked int
}

func (*login) Start(*smtp.ServerInfo) (string, []byte, error) { return "LOGIN", nil, nil }

func (l *login) Next(_ []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	l.asked++
	switch l.asked {
	case 1:
		return []byte(l.cfg.Username), nil
	case 2:
		return []byte(l.cfg.Password.Reveal()), nil
	}
	return nil, errors.New("the server asks for more than LOGIN has")
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// permanent reports whether a server answered that it will never accept this.
func permanent(err error) bool {
	answer, ok := errors.AsType[*textproto.Error](err)
	return ok && answer.Code >= 550 && answer.Code < 560
}
