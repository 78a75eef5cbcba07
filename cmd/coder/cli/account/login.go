package account

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/browser"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type loginOptions struct {
	first        sdk.CreateFirstUserRequest
	email        string
	password     string
	useAsSession bool
	device       bool
}

func loginCmd(g *global.Flags) *cobra.Command {
	var opts loginOptions
	cmd := &cobra.Command{
		Use:   "login [url]",
		Short: "Sign in to a server",
		Long: `Sign in to a server and store the session in the configuration folder, readable by its owner only.

On a server without users the command creates the first user from the --first-user-* flags or by asking on a terminal. The server prints a
setup code for that when it starts; on the same machine and account the command finds it in the configuration folder. Otherwise it signs in
with --token (or $CODER_SESSION_TOKEN), or with --email and --password. Without them, on a terminal, it opens the server's page in a browser,
where you sign in as you always do. A browser on this machine then signs the terminal in. On a machine without a browser, enter the code that
the command prints on the server's page, in any browser, or paste the token that the page shows; --device does so without a terminal too.
From a token given with --token it creates a new session, unless --use-token-as-session stores the token itself.`,
		Example: `  coder login https://coder.example.com
  coder login https://coder.example.com --token "$TOKEN"
  coder login https://coder.example.com --device
  coder login http://127.0.0.1:3000 --first-user-username ada --first-user-email ada@example.com --first-user-password "$PASSWORD"`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runLogin(g, cmd, args, opts) },
	}
	f := cmd.Flags()
	f.StringVar(&opts.first.Username, "first-user-username", "", "name of the first user")
	f.StringVar(&opts.first.Email, "first-user-email", "", "e-mail address of the first user")
	f.StringVar(&opts.first.Password, "first-user-password", "", "password of the first user")
	f.StringVar(&opts.first.Name, "first-user-full-name", "", "full name of the first user")
	f.BoolVar(&opts.first.Trial, "first-user-trial", false, "has no effect: every feature is free")
	f.StringVar(&opts.email, "email", "", "e-mail address to sign in with")
	f.StringVar(&opts.password, "password", "", "password to sign in with")
	f.BoolVar(&opts.device, "device", false, "sign in with a code that you enter in a browser, on any device")
	f.BoolVar(&opts.useAsSession, "use-token-as-session", false,
		"store the given token itself instead of a new session")
	f.StringVar(&opts.first.SetupCode, "setup-code", "", "setup code that the server printed, to create the first user; not needed on the server's own machine and account")
	flags.SetEnv(f.Lookup("setup-code"), "CODER_SETUP_CODE")
	for _, name := range []string{"username", "email", "password", "full-name", "trial"} {
		flags.SetEnv(f.Lookup("first-user-"+name), "CODER_FIRST_USER_"+flags.EnvWord(name))
	}
	cmd.AddCommand(loginTokenCmd(g))
	return cmd
}

func runLogin(g *global.Flags, cmd *cobra.Command, args []string, opts loginOptions) error {
	ctx := cmd.Context()
	if len(args) == 1 {
		g.URL = args[0]
	}
	server, err := g.ServerURL()
	if err != nil {
		return err
	}
	client, err := g.ClientFor(ctx, server, "")
	if err != nil {
		return err
	}
	if g.Token != "" {
		return loginWithToken(ctx, g, client.WithToken(secret.Token(g.Token)), opts.useAsSession)
	}
	if opts.useAsSession {
		return exit.Try(fault.New(fault.Invalid, "--use-token-as-session needs a token"),
			"CODER_SESSION_TOKEN=… %s --use-token-as-session", cmd.CommandPath())
	}
	exists, err := client.HasFirstUser(ctx)
	if err != nil {
		return err
	}
	if !exists {
		if err := createFirstUser(ctx, g, client, &opts); err != nil {
			return err
		}
		opts.email, opts.password = opts.first.Email, opts.first.Password
	}
	if opts.device && exists {
		return loginWithCode(ctx, g, client)
	}
	if opts.email == "" && opts.password == "" && g.Streams().InTTY {
		return loginWithBrowser(ctx, g, client)
	}
	if err := askCredentials(ctx, g, server, &opts); err != nil {
		return err
	}
	session, err := client.Login(ctx, sdk.LoginRequest{Email: opts.email, Password: opts.password})
	if fault.CodeOf(err) == fault.Unauthenticated && err != nil {
		return exit.Try(err, "coder login %s", shell.Word(server.String()))
	}
	if err != nil {
		return err
	}
	return storeSession(ctx, g, client.WithToken(secret.Token(session.SessionToken)))
}

// loginWithToken checks the token and stores it, or a session created from it.
func loginWithToken(ctx context.Context, g *global.Flags, client *sdk.Client, asIs bool) error {
	if _, err := client.User(ctx, sdk.Me); err != nil {
		if fault.CodeOf(err) == fault.Unauthenticated {
			return exit.Try(fault.New(fault.Unauthenticated, "%s refused the token: it is wrong or has expired",
				client.URL()),
				"coder login %s", shell.Word(client.URL().String()))
		}
		return err
	}
	if !asIs {
		key, err := client.CreateAPIKey(ctx, sdk.Me)
		if err != nil {
			return err
		}
		client = client.WithToken(secret.Token(key.Key))
	}
	return storeSession(ctx, g, client)
}

// loginWithBrowser opens the server's page in a browser. A browser on this machine hands its sign-in over; from any
// other, the user pastes the token that the page shows.
func loginWithBrowser(parent context.Context, g *global.Flags, client *sdk.Client) error {
	s := g.Streams()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	page := client.URL().JoinPath("cli-auth").String()
	var sessions chan result // of another way than to paste
	if h, err := newHandoff(ctx, client.URL()); err == nil && browser.Open(ctx, h.page()) {
		page = h.page()
		sessions = make(chan result, 1)
		go func() {
			session, err := h.session(ctx, client)
			sessions <- result{secret.Token(session.SessionToken), err}
		}()
		fmt.Fprintf(s.Err, "Your browser opens this page. Click \"Sign in\" there:\n\n  %s\n\nIf it is on another computer, paste the token that it can show.\n", page)
	} else {
		if err == nil {
			h.listener.Close() // no browser will come
		}
		device, err := newDevice(ctx, client)
		switch {
		case err == nil:
			sessions = make(chan result, 1)
			go func() { sessions <- device.session(ctx, client) }()
			fmt.Fprintf(s.Err, "%s\nOr paste a token of this page:\n\n  %s\n\n", device.instructions(), page)
		case ctx.Err() != nil:
			return err
		default: // a server of a release before, or too many wait
			fmt.Fprintf(s.Err, "Open this page in a browser, sign in there and copy the token:\n\n  %s\n\n", page)
		}
	}
	pasted := make(chan result, 1)
	go func() {
		token, err := s.Ask(ctx, tty.Question{Text: "Token", Secret: true, Check: func(text string) error {
			if !sessionToken().MatchString(strings.TrimSpace(text)) {
				return errors.New("this is not a token of that page: it has 33 characters, with a dash in the eleventh place")
			}
			return nil
		}})
		pasted <- result{secret.Token(strings.TrimSpace(token)), err}
	}()
	select {
	case taken := <-sessions:
		cancel()
		<-pasted // the terminal shows again what is typed
		if taken.err != nil {
			return taken.err
		}
		return storeSession(parent, g, client.WithToken(taken.token))
	case typed := <-pasted:
		if cancel(); sessions != nil {
			<-sessions // it no longer listens
		}
		if typed.err != nil {
			return typed.err
		}
		return loginWithToken(parent, g, client.WithToken(typed.token), true)
	}
}

// result is a token, or why there is none.
type result struct {
	token secret.Token
	err   error
}

// sessionToken matches a token.
var sessionToken = lazyregexp.New(`^[A-Za-z0-9]{10}-[A-Za-z0-9]{22}$`)

// storeSession writes the client's session and server to the configuration folder and greets the user.
func storeSession(ctx context.Context, g *global.Flags, client *sdk.Client) error {
	user, err := client.User(ctx, sdk.Me)
	if err != nil {
		return err
	}
	if err := g.StoreSession(client.URL(), client.Token()); err != nil {
		return err
	}
	g.Use(client)
	fmt.Fprintf(g.Streams().Err, "Welcome, %s. You are signed in to %s.\n", user.Username, client.URL())
	return nil
}

// createFirstUser creates the first user from the flags, and asks for missing values.
func createFirstUser(ctx context.Context, g *global.Flags, client *sdk.Client, opts *loginOptions) error {
	s := g.Streams()
	fields := []struct {
		value *string
		flag  string
		q     tty.Question
	}{
		{&opts.first.SetupCode, "setup-code", tty.Question{Text: "Setup code that the server printed when it started"}},
		{&opts.first.Username, "first-user-username", tty.Question{
			Text: "Username", Default: os.Getenv("USER"), Check: checkUsername,
		}},
		{&opts.first.Email, "first-user-email", tty.Question{Text: "Email", Check: checkEmail}},
		{&opts.first.Password, "first-user-password", tty.Question{Text: "Password", Secret: true}},
	}
	if err := findSetupCode(g, client.URL(), &opts.first); err != nil {
		return err
	}
	if s.InTTY {
		fmt.Fprintf(s.Err, "%s has no users yet. Create the first one, who owns the server.\n", client.URL())
	}
	for _, field := range fields {
		if *field.value != "" {
			continue
		}
		ask := func() (string, error) { return s.Ask(ctx, field.q) }
		if field.q.Secret {
			ask = func() (string, error) { return askPassword(ctx, g) }
		}
		answer, err := ask()
		if errors.Is(err, tty.ErrNotTerminal) {
			return exit.Try(fault.New(fault.Invalid, "%s has no users yet, and creating the first requires --%s",
				client.URL(), field.flag),
				"coder login %s --setup-code CODE --first-user-username NAME --first-user-email ADDRESS --first-user-password PASSWORD", shell.Word(client.URL().String()))
		}
		if err != nil {
			return err
		}
		*field.value = answer
	}
	_, err := client.CreateFirstUser(ctx, opts.first)
	return err
}

// findSetupCode reads the code that a server of the same account stored. It is for servers on this machine only: any
// other would learn it.
func findSetupCode(g *global.Flags, server *url.URL, first *sdk.CreateFirstUserRequest) error {
	if first.SetupCode != "" || !onThisMachine(server) {
		return nil
	}
	dir, err := g.Config()
	if err != nil {
		return err
	}
	first.SetupCode, err = dir.Read(config.FileSetupCode)
	return err
}

func onThisMachine(server *url.URL) bool {
	ip := net.ParseIP(server.Hostname())
	return server.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// minPassword is the server's minimum, checked here so that the user need not type it twice in vain.
const minPassword = 8

// askPassword asks for a new password twice, until both answers match.
func askPassword(ctx context.Context, g *global.Flags) (string, error) {
	s := g.Streams()
	for {
		password, err := s.Ask(ctx, tty.Question{Text: "Password", Secret: true, Check: func(password string) error {
			if utf8.RuneCountInString(password) < minPassword {
				return fmt.Errorf("the password must have at least %d characters", minPassword)
			}
			return nil
		}})
		if err != nil {
			return "", err
		}
		again, err := s.Ask(ctx, tty.Question{Text: "Password again", Secret: true})
		if err != nil {
			return "", err
		}
		if again == password {
			return password, nil
		}
		fmt.Fprintln(s.Err, s.Red("The passwords do not match."))
	}
}

// askCredentials asks for the e-mail address and the password unless the flags set them.
func askCredentials(ctx context.Context, g *global.Flags, server *url.URL, opts *loginOptions) error {
	for _, field := range []struct {
		value *string
		q     tty.Question
	}{
		{&opts.email, tty.Question{Text: "Email", Check: checkEmail}},
		{&opts.password, tty.Question{Text: "Password", Secret: true}},
	} {
		if *field.value != "" {
			continue
		}
		answer, err := g.Streams().Ask(ctx, field.q)
		if errors.Is(err, tty.ErrNotTerminal) {
			return exit.Try(fault.New(fault.Invalid, "without a terminal, signing in requires --token"),
				"coder login %s --token TOKEN", shell.Word(server.String()))
		}
		if err != nil {
			return err
		}
		*field.value = answer
	}
	return nil
}

// userName matches a user name.
var userName = lazyregexp.New(`^[a-zA-Z0-9]+([_-][a-zA-Z0-9]+)*$`)

func checkUsername(name string) error {
	if len(name) > 32 || !userName().MatchString(name) {
		return errors.New("use up to 32 letters, digits and single hyphens")
	}
	return nil
}

func checkEmail(address string) error {
	if parsed, err := mail.ParseAddress(address); err != nil || parsed.Address != address {
		return errors.New("this is not an e-mail address")
	}
	return nil
}

func loginTokenCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:     "token",
		Short:   "Print the stored session token",
		Example: `  coder login token --url https://coder.example.com`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Streams().Out, client.Token().Reveal())
			return err
		},
	}
}
