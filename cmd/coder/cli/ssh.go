package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/ptywire"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/sshmux/bridge"
)

type sshOptions struct {
	stdio         bool
	wait          string
	noWait        bool
	noAutostart   bool
	forwardAgent  bool
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
	hostSuffix    string
	hostPrefix    string
}

func (a *app) sshCmd() *cobra.Command {
	var o sshOptions
	cmd := &cobra.Command{
		Use:   "ssh WORKSPACE [-- command]",
		Short: "Open a shell in a workspace, or run a command there",
		Long: `Open a shell in a workspace, or run a command there. A stopped workspace is started.

The exit status is the remote one; 255 means that ssh itself failed. With --stdio the command is an SSH server on
standard input and output that leads into the workspace, for OpenSSH's ProxyCommand: see "coder config-ssh".

In a shell, the characters Enter ~ . at the start of a line end the connection at once. With --reconnect NAME the shell goes on then, and
when the connection is lost or the agent is restarted: the same name, here or on another computer, brings it back with what it printed.`,
		Example: `  coder ssh dev
  coder ssh --reconnect work dev
  coder ssh grace/dev.main -- make test
  coder ssh -A -R 8080:localhost:80 dev`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &ExitError{Code: exitSSH, Err: Try(fault.New(fault.Invalid, "the workspace is missing"), "coder ssh WORKSPACE")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.ssh(cmd.Context(), args, &o)
			var ended *ExitError
			if err == nil || errors.As(err, &ended) {
				return err
			}
			if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
				return &ExitError{Code: exitInterrupted}
			}
			return &ExitError{Code: exitSSH, Err: err}
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.stdio, "stdio", false, "speak SSH on standard input and output, for OpenSSH's ProxyCommand")
	f.StringVar(&o.wait, "wait", "auto", "wait for the startup scripts: yes, no, or auto for what the template says")
	f.BoolVar(&o.noWait, "no-wait", false, "the same as --wait=no")
	f.BoolVar(&o.noAutostart, "disable-autostart", false, "do not start a stopped workspace")
	f.BoolVarP(&o.forwardAgent, "forward-agent", "A", false, "let the workspace use this machine's SSH agent")
	f.StringVar(&o.identityAgent, "identity-agent", "", "socket of the SSH agent to forward (default $SSH_AUTH_SOCK)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "environment variable NAME=value for the session; may be repeated")
	f.BoolVarP(&o.tty, "tty", "t", false, "give a command a terminal")
	f.StringVar(&o.reconnect, "reconnect", "", "a shell that outlives the connection: its name, or the id of one of the dashboard's terminals")
	f.StringArrayVarP(&o.remoteForward, "remote-forward", "R", nil, "let the workspace reach [address:]port:host:port, or socket:socket, of this machine; may be repeated")
	f.StringVarP(&o.logDir, "log-dir", "l", "", "folder to write a log file to")
	f.StringVar(&o.knownHosts, "known-hosts", "", "with --stdio: file to write this machine's host key to, before OpenSSH reads it")
	f.StringVar(&o.infoDir, "network-info-dir", "", "folder to write facts about the connection to, for IDEs")
	f.DurationVar(&o.infoEvery, "network-info-interval", 5*time.Second, "how often to write them")
	f.StringVar(&o.usageApp, "usage-app", "", "what uses the workspace, for its record: ssh, vscode, jetbrains, or disable to report nothing")
	f.StringVar(&o.hostSuffix, "hostname-suffix", "", "suffix to take off the workspace's name, as in dev.coder")
	f.StringVar(&o.hostPrefix, "ssh-host-prefix", "", "prefix to take off the workspace's name, as in coder.dev")
	SetEnv(f.Lookup("hostname-suffix"), "CODER_SSH_HOSTNAME_SUFFIX")
	SetEnv(f.Lookup("ssh-host-prefix"), "CODER_SSH_SSH_HOST_PREFIX")
	return cmd
}

func (a *app) ssh(ctx context.Context, args []string, o *sshOptions) (err error) {
	name, err := parseWorkspaceName(trimHost(args[0], o.hostPrefix, o.hostSuffix))
	if err != nil {
		return err
	}
	command := args[1:]
	if err := o.check(command); err != nil {
		return err
	}
	closeLog, err := a.logToFile(o.logDir)
	if err != nil {
		return err
	}
	defer closeLog()
	log := a.logger()
	var local *bridge.Bridge // nil without --stdio
	if o.stdio {
		if local, err = a.startBridge(o, args[0]); err != nil {
			return err
		}
		// After an error the process's end closes the pipe: OpenSSH ends us when it is closed, and the person is to read why first.
		defer func() {
			if err == nil {
				local.Close()
			}
		}()
	}
	reachOpts, err := a.reachOptions(ctx, name)
	if err != nil {
		return err
	}
	reachOpts.autostart, reachOpts.reason = !o.noAutostart, sdk.ReasonSSH
	t, err := reach(ctx, reachOpts)
	if err != nil {
		return err
	}
	over := &session{target: t, streams: a.streams(), logger: log}
	log.Debug("agent introduced", "agent", t.agent.ID)
	// Leaving the mesh in order is a courtesy to the other side: it must not keep a person or a script waiting.
	defer leaveQuickly(t.mesh.Leave)
	if err := over.waitStartup(ctx, o.wait); err != nil {
		return err
	}
	if o.reconnect != "" {
		req := ptywire.Request{ID: terminalID(t.agent.ID, o.reconnect), Command: strings.Join(command, " ")}
		return over.lasting(ctx, req, fmt.Sprintf("coder ssh --reconnect %s %s", o.reconnect, args[0]))
	}
	conn, err := t.mesh.DialStream(ctx, t.agent.ID, meshport.Session)
	if err != nil {
		return t.whyLost(ctx, err)
	}
	defer conn.Close()
	log.Debug("connected to the agent", "agent", t.agent.ID)

	background, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	if o.usageApp != "disable" {
		wg.Go(func() { t.reportUsage(background, usageApp(o.usageApp)) })
	}
	if o.infoDir != "" {
		wg.Go(func() { over.writeNetworkInfo(background, o.infoDir, o.infoEvery) })
	}
	if o.stdio {
		return over.stdio(ctx, local, conn)
	}
	return over.run(ctx, conn, command, sessionOptions{
		env: o.env, tty: o.tty, forwardAgent: o.forwardAgent, identityAgent: o.identityAgent, remoteForward: o.remoteForward,
	})
}

func (o *sshOptions) check(command []string) error {
	if o.noWait {
		o.wait = "no"
	}
	switch {
	case o.wait != "yes" && o.wait != "no" && o.wait != "auto":
		return fault.New(fault.Invalid, "--wait is yes, no or auto, not %q", o.wait)
	case o.stdio && len(command) > 0:
		return fault.New(fault.Invalid, "--stdio cannot be combined with a command")
	case !o.stdio && o.knownHosts != "":
		return fault.New(fault.Invalid, "--known-hosts requires --stdio")
	case o.reconnect != "" && (o.stdio || o.forwardAgent || len(o.remoteForward)+len(o.env) > 0):
		return fault.New(fault.Invalid, "--reconnect gives a terminal: without --stdio, -A, -R and -e")
	case o.infoEvery <= 0:
		return fault.New(fault.Invalid, "--network-info-interval must be above zero")
	}
	for _, pair := range o.env {
		if key, _, ok := strings.Cut(pair, "="); !ok || key == "" {
			return fault.New(fault.Invalid, "--env %q is not NAME=value", pair)
		}
	}
	return nil
}

// usageApp is the name under which the server counts.
func usageApp(flag string) string {
	if flag == "" {
		return "ssh"
	}
	return flag
}

// logToFile makes --verbose log to a file of the folder; "" leaves everything as it is.
func (a *app) logToFile(dir string) (closer func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(fault.Invalid, "the log folder cannot be made: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("coder-ssh-%s-%d.log", time.Now().Format("20060102-150405"), os.Getpid())),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the log cannot be written: %w", err)
	}
	a.logFile = f
	return func() { f.Close() }, nil
}

// startBridge begins to speak SSH with OpenSSH on the standard streams.
func (a *app) startBridge(o *sshOptions, host string) (*bridge.Bridge, error) {
	dir, err := a.config()
	if err != nil {
		return nil, err
	}
	return startBridge(a.streams(), a.logger(), dir, o.knownHosts, host)
}

// reachOptions are what the global flags say about reaching a workspace.
func (a *app) reachOptions(ctx context.Context, name workspaceName) (reachOptions, error) {
	client, err := a.client(ctx)
	return reachOptions{
		client: client, streams: a.streams(), logger: a.logger(), relayOnly: a.disableDirect, verbose: a.verbose, name: name,
	}, err
}
