package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/session"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

type sshOptions struct {
	stdio         bool
	wait          string
	noWait        bool
	noAutostart   bool
	forwardAgent  bool
	forwardGPG    bool
	identityAgent string
	env           []string
	tty           bool
	reconnect     string
	remoteForward []string
	logDir        string
	knownHosts    string
	infoDir       string
	infoEvery     time.Duration
	usageApp      string
	pollEvery     time.Duration
	hostSuffix    string
	hostPrefix    string
}

func sshCmd(g *global.Flags) *cobra.Command {
	var opts sshOptions
	cmd := &cobra.Command{
		Use:   "ssh WORKSPACE [-- command]",
		Short: "Open a shell in a workspace, or run a command there",
		Long: `Open a shell in a workspace, or run a command there. A stopped workspace is started.

The exit status is the remote one; 255 means that ssh itself failed. With --stdio the command serves SSH on standard input and
output for OpenSSH's ProxyCommand: see "coder config-ssh".

In a shell, typing ~. at the start of a line ends the connection at once. With --reconnect NAME the shell keeps running then, and also when the
connection is lost or the agent restarts; the same name, here or on another computer, reattaches to it and shows what it printed.`,
		Example: `  coder ssh dev
  coder ssh --reconnect work dev
  coder ssh grace/dev.main -- make test
  coder ssh -A -R 8080:localhost:80 dev`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exit.Error{
					Code: exit.SSH, Err: exit.Try(fault.New(fault.Invalid, "name a workspace"), "coder ssh WORKSPACE"),
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return endSSH(cmd.Context(), runSSH(cmd.Context(), g, args, &opts))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&opts.stdio, "stdio", false, "speak SSH on standard input and output, for OpenSSH's ProxyCommand")
	f.StringVar(&opts.wait, "wait", "auto", "wait for the startup scripts: yes, no, or auto to follow the template")
	f.BoolVar(&opts.noWait, "no-wait", false, "do not wait for the startup scripts; same as --wait=no")
	f.BoolVar(&opts.noAutostart, "disable-autostart", false, "do not start a stopped workspace")
	f.BoolVarP(&opts.forwardAgent, "forward-agent", "A", false, "let the workspace use this machine's SSH agent")
	f.BoolVarP(&opts.forwardGPG, "forward-gpg", "G", false,
		"explain how to let the workspace use this machine's GPG agent")
	f.Lookup("forward-gpg").Hidden = true // scripts pass it
	f.StringVar(&opts.identityAgent, "identity-agent", "",
		"socket of the SSH agent to forward (default $SSH_AUTH_SOCK)")
	f.StringArrayVarP(&opts.env, "env", "e", nil, "environment variable NAME=value for the session; may be repeated")
	f.BoolVarP(&opts.tty, "tty", "t", false, "allocate a terminal for a command")
	f.StringVar(&opts.reconnect, "reconnect", "",
		"name of a shell that outlives the connection, or the id of one of the dashboard's terminals")
	f.StringArrayVarP(&opts.remoteForward, "remote-forward", "R", nil,
		"forward from the workspace to this machine, as [address:]port:host:port or socket:socket; may be repeated")
	f.StringVarP(&opts.logDir, "log-dir", "l", "", "folder to write a log file to")
	f.StringVar(&opts.knownHosts, "known-hosts", "",
		"known_hosts file to write this machine's host key to before OpenSSH reads it; requires --stdio")
	f.StringVar(&opts.infoDir, "network-info-dir", "", "folder for a JSON file about the connection, for IDEs")
	f.DurationVar(&opts.infoEvery, "network-info-interval", 5*time.Second, "interval between two writes of that file")
	f.StringVar(&opts.usageApp, "usage-app", "", "program that uses the workspace, for its usage record: ssh, vscode, jetbrains, or disable to report nothing (default ssh)")
	f.StringVar(&opts.hostSuffix, "hostname-suffix", "",
		"suffix to strip from the workspace's name, such as coder in dev.coder")
	f.StringVar(&opts.hostPrefix, "ssh-host-prefix", "",
		"prefix to strip from the workspace's name, such as coder. in coder.dev")
	f.DurationVar(&opts.pollEvery, "workspace-poll-interval", target.NoticeEvery,
		"how long a session may go on without asking the server whether the workspace is going to stop; at least 1s")
	flags.SetEnv(f.Lookup("hostname-suffix"), "CODER_SSH_HOSTNAME_SUFFIX")
	flags.SetEnv(f.Lookup("ssh-host-prefix"), "CODER_SSH_SSH_HOST_PREFIX")
	return cmd
}

// endSSH gives the error of runSSH its exit code.
func endSSH(ctx context.Context, err error) error {
	var ended *exit.Error
	if err == nil || errors.As(err, &ended) {
		return err
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &exit.Error{Code: exit.Interrupted}
	}
	return &exit.Error{Code: exit.SSH, Err: err}
}

func runSSH(ctx context.Context, g *global.Flags, args []string, opts *sshOptions) (err error) {
	if opts.forwardGPG {
		return exit.Try(fault.New(fault.Invalid, "coder ssh cannot forward a GPG agent, but OpenSSH can"),
			`coder config-ssh && ssh -R "$(ssh coder.%[1]s gpgconf --list-dirs agent-socket):$(gpgconf --list-dirs agent-extra-socket)" coder.%[1]s`, shell.Word(args[0]))
	}
	name, err := target.ParseName(target.TrimHost(args[0], opts.hostPrefix, opts.hostSuffix))
	if err != nil {
		return err
	}
	command := args[1:]
	if err := opts.check(command); err != nil {
		return err
	}
	closeLog, err := logToFile(g, opts.logDir)
	if err != nil {
		return err
	}
	defer closeLog()
	log := g.Logger()
	var local *bridge.Bridge // nil without --stdio
	if opts.stdio {
		if local, err = startBridge(g, opts, args[0]); err != nil {
			return err
		}
		// After an error the pipe closes with the process: OpenSSH kills this program when it is closed, and the error
		// must be printed first.
		defer func() {
			if err == nil {
				local.Close()
			}
		}()
	}
	reachOpts, err := targetOptions(ctx, g, name)
	if err != nil {
		return err
	}
	reachOpts.Autostart, reachOpts.Reason = !opts.noAutostart, sdk.ReasonSSH
	reachOpts.NoticeEvery = opts.pollEvery
	t, err := target.Reach(ctx, reachOpts)
	if err != nil {
		return err
	}
	over := &session.Session{Target: t, Streams: g.Streams(), Logger: log}
	log.Debug("agent introduced", "agent", t.Agent.ID)
	// Leaving the mesh in order is a courtesy to the peer. It must not keep the user waiting.
	defer target.LeaveQuickly(t.Mesh.Leave)
	if err := over.WaitStartup(ctx, opts.wait); err != nil {
		return err
	}
	if opts.reconnect != "" {
		req := ptywire.Request{
			ID: session.TerminalID(t.Agent.ID, opts.reconnect), Command: strings.Join(command, " "), Early: true,
		}
		return over.Attach(ctx, req,
			fmt.Sprintf("coder ssh --reconnect %s %s", shell.Word(opts.reconnect), shell.Word(args[0])))
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		return t.Mesh.DialStream(ctx, t.Agent.ID, meshport.Session)
	}
	conn, err := dial(ctx)
	if err != nil {
		return t.WhyLost(ctx, err)
	}
	defer conn.Close()
	log.Debug("connected to the agent", "agent", t.Agent.ID)

	background, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	if opts.usageApp != "disable" {
		wg.Go(func() { t.ReportUsage(background, usageApp(opts.usageApp)) })
	}
	if opts.infoDir != "" {
		wg.Go(func() { over.WriteNetworkInfo(background, opts.infoDir, opts.infoEvery) })
	}
	if opts.stdio {
		return over.Stdio(ctx, local, conn, dial)
	}
	return over.Run(ctx, conn, command, session.Options{
		Env: opts.env, TTY: opts.tty, ForwardAgent: opts.forwardAgent, IdentityAgent: opts.identityAgent,
		RemoteForward: opts.remoteForward, Redial: dial,
	})
}

func (opts *sshOptions) check(command []string) error {
	if opts.noWait {
		opts.wait = "no"
	}
	switch {
	case opts.wait != "yes" && opts.wait != "no" && opts.wait != "auto":
		return fault.New(fault.Invalid, "--wait must be yes, no or auto, not %q", opts.wait)
	case opts.stdio && len(command) > 0:
		return fault.New(fault.Invalid, "--stdio cannot be combined with a command")
	case !opts.stdio && opts.knownHosts != "":
		return fault.New(fault.Invalid, "--known-hosts requires --stdio")
	case opts.reconnect != "" && (opts.stdio || opts.forwardAgent || len(opts.remoteForward)+len(opts.env) > 0):
		return fault.New(fault.Invalid, "--reconnect cannot be combined with --stdio, -A, -R or -e")
	case opts.pollEvery < time.Second:
		return fault.New(fault.Invalid, "--workspace-poll-interval must be at least one second")
	case opts.infoEvery <= 0:
		return fault.New(fault.Invalid, "--network-info-interval must be greater than zero")
	}
	for _, pair := range opts.env {
		if key, _, ok := strings.Cut(pair, "="); !ok || key == "" {
			return fault.New(fault.Invalid, "--env %q is not NAME=value", pair)
		}
	}
	return nil
}

// usageApp returns the name under which the server counts the session.
func usageApp(flag string) string {
	if flag == "" {
		return "ssh"
	}
	return flag
}

// logToFile logs to a new file in the folder. It does nothing for "".
func logToFile(g *global.Flags, dir string) (closer func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(fault.Invalid, "cannot create the log folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir,
		fmt.Sprintf("coder-ssh-%s-%d.log", time.Now().Format("20060102-150405"), os.Getpid())),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot create the log file: %w", err)
	}
	g.LogFile = f
	return func() { f.Close() }, nil
}

// startBridge serves SSH to OpenSSH on the standard streams.
func startBridge(g *global.Flags, opts *sshOptions, host string) (*bridge.Bridge, error) {
	dir, err := g.Config()
	if err != nil {
		return nil, err
	}
	return session.StartBridge(g.Streams(), g.Logger(), dir, opts.knownHosts, host)
}

// targetOptions returns options with the client and settings of the global flags.
func targetOptions(ctx context.Context, g *global.Flags, name target.Name) (target.Options, error) {
	client, err := g.Client(ctx)
	return target.Options{
		Client: client, Streams: g.Streams(), Logger: g.Logger(), RelayOnly: g.RelayOnly, Verbose: g.Verbose,
		Name: name,
	}, err
}
