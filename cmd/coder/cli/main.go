package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/buildinfo"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/tty"
)

// Exit codes of the program.
const (
	exitFailed      = 1
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
	exitSSH         = 255 // ssh's own failures, as OpenSSH has it
)

const exitCodesHelp = `Exit codes: 0 done, 1 failed, 130 interrupted. "ssh" passes the remote exit status through and answers 255 when it fails
itself.`

// Bounds of a client command's memory. A mesh node allocates some 33 MiB of receive buffers as it starts, and touches few of
// them; collecting meanwhile would be a third of a short command's work. A command that lives on collects as usual; the
// limit bounds what bulk traffic keeps in flight, at a tenth of its speed.
const (
	clientMemoryLimit = 160 << 20 // bytes
	startGCPercent    = 1000      // the first collection comes at 40 MiB
	clientGCPercent   = 100
	startTime         = time.Second
)

// Main runs the program with os.Args and returns its exit code. extra are the commands that only some programs have.
func Main(extra ...*cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	// The first signal asks for an orderly end; after it a second one ends the program at once.
	defer context.AfterFunc(ctx, stop)()

	a := newApp(nil)
	root := a.root(extra)
	if args, ok := askpassArgs(os.Args[1:]); ok {
		root.SetArgs(args)
	} else if args, ok := signArgs(os.Args[1:]); ok {
		root.SetArgs(args)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		a.warnVersion()
		return 0
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		if exit.Err != nil {
			report(a.streams(), cmd, exit.Err)
		}
		return exit.Code
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err())) {
		return exitInterrupted
	}
	report(a.streams(), cmd, err)
	return exitFailed
}

// endings are the signals that end a command. One that was ignored from the start, as by nohup, stays so.
func endings() []os.Signal {
	var signals []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	return signals
}

// New is the program as a command, for tests and for documentation. extra are the commands that only some programs have.
func New(extra ...*cobra.Command) *cobra.Command { return newApp(nil).root(extra) }

// root builds the command tree. It sets none of cobra's templates: with one text/template is linked, whose look-ups by name
// keep every exported method of the program, 7 of 28 MB of the slim binary.
func (a *app) root(extra []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "coder",
		Short: "Development workspaces on a peer-to-peer mesh",
		Long: `coder works with a codermesh server: it signs in, pushes templates, builds workspaces and opens shells and ports in them.

` + exitCodesHelp,
		Example: `  coder login https://coder.example.com
  coder create dev -t docker
  coder ssh dev`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Version:           buildinfo.Version(),
		PersistentPreRunE: a.prepare,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	a.globalFlags(root)
	showEnv(root)
	root.AddGroup(
		&cobra.Group{ID: groupWorkspaces, Title: "Workspaces:"},
		&cobra.Group{ID: groupConnect, Title: "Reach a workspace:"},
		&cobra.Group{ID: groupDeployment, Title: "Templates, users, provisioners:"},
		&cobra.Group{ID: groupInside, Title: "Inside a workspace:"},
		&cobra.Group{ID: groupServer, Title: "Run the server and its parts:"},
	)
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{groupWorkspaces, []*cobra.Command{a.createCmd(), a.startCmd(), a.stopCmd(), a.restartCmd(), a.updateCmd(), a.deleteCmd(), a.renameCmd(),
			a.listCmd(), a.showCmd(), a.logsCmd(), a.stateCmd(), a.scheduleCmd(), a.autoupdateCmd(), a.favoriteCmd(), a.unfavoriteCmd()}},
		{groupConnect, []*cobra.Command{a.sshCmd(), a.configSSHCmd(), a.portForwardCmd(), a.pingCmd(), a.speedtestCmd(), a.netcheckCmd(), a.doctorCmd(), a.supportCmd()}},
		{groupDeployment, []*cobra.Command{a.templatesCmd(), a.usersCmd(), a.tokensCmd(), a.publicKeyCmd()}},
		{groupInside, []*cobra.Command{a.statCmd(), a.dotfilesCmd(), a.expCmd(), a.gitSSHCmd(), a.gitSignCmd(), a.gitAskpassCmd(), a.externalAuthCmd()}},
		{groupServer, []*cobra.Command{a.agentCmd()}},
		{"", []*cobra.Command{a.loginCmd(), a.logoutCmd(), a.whoamiCmd(), a.versionCmd(), a.completionCmd()}},
	} {
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	provisioner := a.provisionerCmd()
	provisioner.GroupID = groupDeployment
	root.AddCommand(provisioner)
	for _, cmd := range extra {
		adopt(root, cmd)
	}
	checkArguments(root)
	return root
}

// Groups of commands in the help.
const (
	groupWorkspaces = "workspaces"
	groupConnect    = "connect"
	groupDeployment = "deployment"
	groupInside     = "inside"
	groupServer     = "server"
)

// adopt adds an extra command. Where a command of that name exists, the extra one's subcommands are added to it.
func adopt(parent, extra *cobra.Command) {
	for _, have := range parent.Commands() {
		if have.Name() != extra.Name() {
			continue
		}
		for _, sub := range extra.Commands() {
			extra.RemoveCommand(sub)
			adopt(have, sub)
		}
		return
	}
	if parent.Parent() == nil && extra.GroupID == "" && !extra.Hidden {
		extra.GroupID = groupServer
	}
	parent.AddCommand(extra)
}

// ExitError ends the program with a certain code. Err may be nil: everything has been said.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// hinted is an error with the command line that may help.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Try adds to an error what the person may run next: "coder login URL". It is the second line of what is printed.
func Try(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return hinted{err, fmt.Sprintf(format, args...)}
}

// report prints two lines: what happened and what to try.
func report(s *tty.Streams, cmd *cobra.Command, err error) {
	var lines []string
	if f := fault.As(err); f != nil {
		line := f.Error()
		for _, field := range f.Fields {
			if !strings.Contains(line, field.Detail) {
				line = fmt.Sprintf("%s; %s: %s", strings.TrimSuffix(line, "."), field.Field, field.Detail)
			}
		}
		lines = append(lines, line)
	} else {
		lines = append(lines, err.Error())
	}
	hint := "coder --help"
	if cmd != nil {
		hint = cmd.CommandPath() + " --help"
	}
	var h hinted
	switch {
	case errors.As(err, &h):
		hint = h.hint
	case cmd != nil && cmd.Annotations[keepMemory] != "": // a daemon: its flags, not a session, are what helps
	case fault.CodeOf(err) == fault.Unauthenticated:
		hint = "coder login"
	case fault.CodeOf(err) == fault.Forbidden:
		hint = "coder whoami"
	case fault.CodeOf(err) == fault.Unavailable:
		hint = "coder doctor"
	}
	// What templates and programs said may be in it.
	fmt.Fprintf(s.Err, "%s %s\n", s.Red("error:"), strings.ReplaceAll(tty.Clean(strings.Join(lines, "; ")), "\n", " "))
	fmt.Fprintf(s.Err, "Try: %s\n", hint)
}

// boundMemory sets the memory limits of a client command, unless the environment does.
func boundMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(clientMemoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(startGCPercent)
		time.AfterFunc(startTime, func() { debug.SetGCPercent(clientGCPercent) })
	}
}
