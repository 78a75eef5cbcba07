package e2e_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/emersion/go-smtp"
	"github.com/rogpeppe/go-internal/testscript"
)

// cmdMailServer starts an SMTP server for the rest of the script. It sets SMTP to its address and writes each mail to a file in the folder mail.
func cmdMailServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: mailserver")
	}
	dir := ts.MkAbs("mail")
	ts.Check(os.MkdirAll(dir, 0o700))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	var n atomic.Int32
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{dir: dir, n: &n}, nil }))
	server.Domain = "mail.example.com"
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	ts.Defer(func() { _ = server.Close(); <-done })
	ts.Setenv("SMTP", l.Addr().String())
}

// mailSession is one connection to the mail server.
type mailSession struct {
	dir string
	n   *atomic.Int32
	to  string
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error      { return nil }
func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error { s.to = to; return nil }
func (s *mailSession) Reset()                                    {}
func (s *mailSession) Logout() error                             { return nil }
func (s *mailSession) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, fmt.Sprintf("%d-%s", s.n.Add(1), s.to)), data, 0o600)
}
