package main

import (
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/settings"
	"github.com/codermesh/codermesh/v2/coderd/mail"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// notificationOptions are the flags of `coder server` that say how users are notified.
type notificationOptions struct {
	mail         mail.Config
	password     string
	passwordFile string
	config       notifications.Config
	webhook      string
	networks     []string
	inbox        bool
}

func (o *notificationOptions) flags(f *pflag.FlagSet) {
	m := &o.mail
	f.StringVar(&m.From, "email-from", "", "sender of mail, such as coder@example.com; required for mail")
	f.StringVar(&m.Smarthost, "email-smarthost", "",
		"host and port of the SMTP server, such as smtp.example.com:587 (default no mail)")
	f.StringVar(&m.Hello, "email-hello", "localhost", "name by which this server introduces itself to the SMTP server")
	f.BoolVar(&m.ForceTLS, "email-force-tls", false,
		"use TLS from the start of the connection, as servers on port 465 expect")
	f.StringVar(&m.Identity, "email-auth-identity", "", "identity for PLAIN authentication; usually empty")
	f.StringVar(&m.Username, "email-auth-username", "", "username at the SMTP server (default no authentication)")
	f.StringVar(&o.password, "email-auth-password", "",
		"password at the SMTP server (prefer the environment variable or the file)")
	f.StringVar(&o.passwordFile, "email-auth-password-file", "", "file with the password at the SMTP server")
	f.BoolVar(&m.StartTLS, "email-tls-starttls", false, "refuse SMTP servers that do not offer STARTTLS")
	f.StringVar(&m.ServerName, "email-tls-server-name", "",
		"name in the SMTP server's certificate (default the host of --email-smarthost)")
	f.BoolVar(&m.SkipVerify, "email-tls-skip-verify", false, "accept any certificate of the SMTP server")
	f.StringVar(&m.CAFile, "email-tls-ca-cert-file", "",
		"PEM file with the authorities that may issue the SMTP server's certificate (default the system's)")
	f.StringVar(&m.CertFile, "email-tls-cert-file", "",
		"PEM file with a client certificate for the SMTP server; requires --email-tls-cert-key-file")
	f.StringVar(&m.KeyFile, "email-tls-cert-key-file", "", "PEM file with the key of --email-tls-cert-file")

	c := &o.config
	f.StringVar(&c.Method, "notifications-method", notifications.MethodSMTP,
		"how events are delivered besides the inbox: smtp or webhook")
	f.StringVar(&o.webhook, "notifications-webhook-endpoint", "", "URL that notifications are posted to")
	f.StringSliceVar(&o.networks, "webhook-allowed-networks", nil,
		"networks of this server's own host, such as 127.0.0.0/8, that webhooks may post to (default none)")
	f.IntVar(&c.MaxAttempts, "notifications-max-send-attempts", notifications.DefaultAttempts,
		"how often the delivery of a notification is tried")
	f.DurationVar(&c.Timeout, "notifications-dispatch-timeout", notifications.DefaultTimeout,
		"how long one attempt to deliver a notification may take")
	f.BoolVar(&o.inbox, "notifications-inbox-enabled", true, "deliver notifications to users' inboxes on the dashboard")
}

// setEnv names the variables that differ from their flags.
func (*notificationOptions) setEnv(f *pflag.FlagSet) {
	for flag, env := range map[string]string{
		"email-tls-server-name": "CODER_EMAIL_TLS_SERVERNAME", "email-tls-skip-verify": "CODER_EMAIL_TLS_SKIPVERIFY", "email-tls-ca-cert-file": "CODER_EMAIL_TLS_CACERTFILE",
		"email-tls-cert-file": "CODER_EMAIL_TLS_CERTFILE", "email-tls-cert-key-file": "CODER_EMAIL_TLS_CERTKEYFILE",
	} {
		flags.SetEnv(f.Lookup(flag), env)
	}
}

// rename accepts the earlier names that Coder's server has for the settings of mail.
func (*notificationOptions) rename(s *settings.Set, cmd *cobra.Command) {
	for _, name := range []string{
		"from", "smarthost", "hello", "force-tls", "auth-identity", "auth-username", "auth-password", "auth-password-file",
		"tls-starttls", "tls-server-name", "tls-skip-verify", "tls-ca-cert-file", "tls-cert-file", "tls-cert-key-file",
	} {
		flag := "email-" + name
		variable := flags.EnvNames(cmd, cmd.Flags().Lookup(flag))[0]
		s.Rename(flag, "notifications-"+flag, strings.Replace(variable, "CODER_", "CODER_NOTIFICATIONS_", 1))
	}
}

// build checks the options and reads their files.
func (o *notificationOptions) build() (notifications.Config, error) {
	c := o.config
	c.NoInbox = !o.inbox
	if c.MaxAttempts < 1 {
		return c, fault.New(fault.Invalid, "--notifications-max-send-attempts cannot be %d", c.MaxAttempts)
	}
	if c.Timeout <= 0 {
		return c, fault.New(fault.Invalid, "--notifications-dispatch-timeout cannot be %s", c.Timeout)
	}
	if o.webhook != "" {
		u, err := url.Parse(o.webhook)
		if err != nil { // the error contains the URL, which may be a secret
			return c, fault.New(fault.Invalid, "--notifications-webhook-endpoint is not a URL").
				WithDetail("It looks like https://hooks.example.com/coder.")
		}
		c.Webhook = u
	}
	sender, err := o.sender()
	if err != nil {
		return c, err
	}
	if sender != nil {
		c.Mail = sender
	}
	return c, c.Check()
}

// sender returns what sends mail, or nil if it is not configured.
func (o *notificationOptions) sender() (*mail.Sender, error) {
	m := o.mail
	if m.Smarthost == "" {
		if m.Username != "" || m.From != "" {
			return nil, fault.New(fault.Invalid, "--email-smarthost is missing").
				WithDetail("It looks like smtp.example.com:587.")
		}
		return nil, nil
	}
	m.Password = secret.Token(o.password)
	if o.passwordFile != "" {
		if o.password != "" {
			return nil, fault.New(fault.Invalid,
				"--email-auth-password and --email-auth-password-file cannot be combined")
		}
		text, err := os.ReadFile(o.passwordFile)
		if err != nil {
			return nil, fault.New(fault.Invalid, "--email-auth-password-file cannot be read: %w", err)
		}
		m.Password = secret.Token(strings.TrimRight(string(text), "\r\n"))
	}
	return mail.New(m)
}
