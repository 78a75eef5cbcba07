package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/account"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/complete"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/connect"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/diagnose"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/inside"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/provisioners"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/templates"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/workspaces"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

const exitCodesHelp = `Exit codes: 0 done, 1 failed, 130 interrupted. "ssh" returns the remote exit status, or 255 if it fails
itself.`

// Main runs the program with os.Args and returns its exit code. extra holds commands that only some programs have.
func Main(extra ...*cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	// The first signal requests an orderly end; after it a second one ends the program at once.
	defer context.AfterFunc(ctx, stop)()

	g := global.New(nil)
	program := root(g, extra)
	if args, ok := inside.AskpassArgs(os.Args[1:]); ok {
		program.SetArgs(args)
	} else if args, ok := inside.SignArgs(os.Args[1:]); ok {
		program.SetArgs(args)
	}
	cmd, err := program.ExecuteContextC(ctx)
	if err == nil {
		g.WarnVersion()
		return 0
	}
	var ended *exit.Error
	if errors.As(err, &ended) {
		if ended.Err != nil {
			report(g.Streams(), cmd, ended.Err)
		}
		return ended.Code
	}
	if errors.Is(err, tty.ErrInterrupted) || ctx.Err() != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err())) {
		return exit.Interrupted
	}
	report(g.Streams(), cmd, err)
	return exit.Failed
}

// endings returns the signals that end a command. A signal that was ignored from the start, as by nohup, stays ignored.
func endings() []os.Signal {
	var signals []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	return signals
}

// New returns the program as a command, for tests and for documentation. extra holds commands that only some programs
// have.
func New(extra ...*cobra.Command) *cobra.Command { return root(global.New(nil), extra) }

// prepare runs before every command: flags that were not given take their value from the environment.
func prepare(cmd *cobra.Command, g *global.Flags) error {
	cmd.SetContext(context.WithValue(cmd.Context(), appKey{}, g))
	if err := flags.BindEnv(cmd); err != nil {
		return err
	}
	if cmd.Annotations[keepMemory] == "" {
		boundMemory()
	}
	return nil
}

// root builds the command tree. It sets none of cobra's templates: a single one links text/template, whose look-ups by
// name keep every exported method of the program, 7 of 28 MB of the slim binary.
func root(g *global.Flags, extra []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "coder",
		Short: "Development workspaces on a peer-to-peer mesh",
		Long: `coder works with a codermesh server: sign in, push templates, build workspaces, and open shells and ports in them.

` + exitCodesHelp,
		Example: `  coder login https://coder.example.com
  coder create dev -t docker
  coder ssh dev`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Version:           buildinfo.Version(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return prepare(cmd, g) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	g.Add(root.PersistentFlags())
	flags.ShowEnv(root)
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
		{groupWorkspaces, workspaces.Commands(g)},
		{groupConnect, slices.Concat(connect.Commands(g), diagnose.Commands(g))},
		{groupDeployment, append(account.Commands(g), templates.Command(g), templates.Prebuilds(g), provisioners.Command(g))},
		{groupInside, append(inside.Commands(g), expCmd(g))},
		{groupServer, []*cobra.Command{agentCmd(g)}},
		{"", append(account.LoginCommands(g), versionCmd(g), completionCmd(g))},
	} {
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	for _, cmd := range extra {
		adopt(root, cmd)
	}
	complete.Install(root, g)
	flags.CheckArguments(root)
	flags.ExplainFlags(root)
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

// adopt adds an extra command. If a command of that name exists, adopt adds the extra one's subcommands to it.
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

// whoseDisk begins a sentence about a disk that takes no more data.
func whoseDisk() string {
	if os.Getenv("CODER_WORKSPACE_NAME") != "" {
		return "The workspace's disk"
	}
	return "This machine's disk"
}

// report prints two lines: what happened and what to try.
func report(s *tty.Streams, cmd *cobra.Command, err error) {
	remedy := ""
	if full := disk.Fault(err, whoseDisk()); full != nil {
		err, remedy, full.Detail = full, full.Detail, ""
	}
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
	own, hinted := exit.Hint(err)
	switch {
	case remedy != "":
		hint = remedy
	case hinted:
		hint = own
	case cmd != nil && cmd.Annotations[keepMemory] != "": // a daemon needs its flags, not a session
	case fault.CodeOf(err) == fault.Unauthenticated:
		hint = "coder login"
	case fault.CodeOf(err) == fault.Forbidden:
		hint = "coder whoami"
	case fault.CodeOf(err) == fault.Unavailable:
		hint = "coder doctor"
	}
	// The message may contain output of templates and programs.
	fmt.Fprintf(s.Err, "%s %s\n", s.Red("error:"), strings.ReplaceAll(tty.Clean(strings.Join(lines, "; ")), "\n", " "))
	fmt.Fprintf(s.Err, "Try: %s\n", strings.ReplaceAll(tty.Clean(hint), "\n", " "))
}
