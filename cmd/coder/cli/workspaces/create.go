package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/form"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type createOptions struct {
	template, version, preset string
	copyFrom                  string
	stopAfter                 time.Duration
	startAt                   string
	updates                   string
	noWait, yes, wait, always bool
	params                    form.Flags
	tags                      []string
	org                       organization.Flag
}

func createCmd(g *global.Flags) *cobra.Command {
	var opts createOptions
	cmd := &cobra.Command{
		Use:   "create [name]",
		Short: "Create a workspace from a template",
		Long: `Create a workspace and follow its build. The command ends with the build; on a terminal, or with --wait, it also waits until the
agents are ready: until they have connected, and the start scripts that block sign-ins have finished. An interrupt cancels the build.
It does not wait for the build of a prebuilt workspace whose agents are yours at once.

If the template needs a login at another service, such as a Git host, the command prints the page where you link your account. On a
terminal it waits until you have; elsewhere it fails.

On a terminal the command asks for the template, a name, a preset and parameters without a value, plans the workspace and lists its resources, and
asks whether to create them. Elsewhere, and with --yes, nothing is asked or planned: the template's default preset and the parameters' defaults
apply, and a parameter without a default is an error.`,
		Example: `  coder create dev -t docker
  coder create dev -t docker --parameter region=eu --yes
  coder create grace/dev -t docker --copy-parameters-from dev`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runCreate(g, cmd, args, &opts) },
	}
	f := cmd.Flags()
	f.StringVarP(&opts.template, "template", "t", "", "name of the template")
	f.StringVar(&opts.version, "template-version", "", "version of the template (default the active one)")
	f.StringVar(&opts.preset, "preset", "", `preset with values for parameters, or "none" (default the template's default preset)`)
	f.StringVar(&opts.copyFrom, "copy-parameters-from", "", "workspace to take parameter values from")
	f.DurationVar(&opts.stopAfter, "stop-after", 0,
		"time after each start when the workspace stops, such as 8h (default the template's)")
	f.StringVar(&opts.startAt, "start-at", "", "time of automatic starts, such as \"9:30AM Mon-Fri Europe/Berlin\" (zone default this machine's), or a cron expression")
	f.StringVar(&opts.updates, "automatic-updates", string(sdk.UpdatesNever),
		"use new versions at each start: always or never")
	f.BoolVar(&opts.noWait, "no-wait", false, "return without waiting for the build")
	f.BoolVar(&opts.wait, "wait", false, "wait until the agents are ready, even without a terminal")
	f.BoolVar(&opts.always, "always-prompt", false,
		"on a terminal, also ask for parameters with a value of the preset or of another workspace")
	flags.SetEnv(f.Lookup("template"), "CODER_TEMPLATE_NAME")
	flags.SetEnv(f.Lookup("template-version"), "CODER_TEMPLATE_VERSION")
	flags.SetEnv(f.Lookup("preset"), "CODER_PRESET_NAME")
	flags.SetEnv(f.Lookup("copy-parameters-from"), "CODER_WORKSPACE_COPY_PARAMETERS_FROM")
	flags.SetEnv(f.Lookup("stop-after"), "CODER_WORKSPACE_STOP_AFTER")
	flags.SetEnv(f.Lookup("start-at"), "CODER_WORKSPACE_START_AT")
	flags.SetEnv(f.Lookup("automatic-updates"), "CODER_WORKSPACE_AUTOMATIC_UPDATES")
	opts.params.Add(cmd)
	tagsFlag(cmd, &opts.tags)
	opts.org.AddLookup(cmd)
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runCreate(g *global.Flags, cmd *cobra.Command, args []string, opts *createOptions) error {
	ctx := cmd.Context()
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	var name target.Name
	if len(args) == 1 || !g.Streams().InTTY {
		if name, err = givenName(args); err != nil {
			return err
		}
	}
	template, err := chooseTemplate(ctx, g, client, opts.org, opts.template)
	if err != nil {
		return err
	}
	if name == (target.Name{}) {
		if name, err = askName(ctx, g, client, template.Name); err != nil {
			return err
		}
	}
	req := sdk.CreateWorkspaceRequest{
		Name: name.Name, AutomaticUpdates: sdk.AutomaticUpdates(opts.updates), TemplateID: template.ID,
	}
	version := template.ActiveVersionID
	if opts.version != "" {
		v, err := client.TemplateVersionByName(ctx, template.ID, opts.version)
		if err != nil {
			return exit.Try(err, "coder templates versions list %s", shell.Word(template.Name))
		}
		version, req.TemplateID, req.TemplateVersionID = v.ID, uuid.Nil, v.ID
	}
	if opts.stopAfter > 0 {
		ms := opts.stopAfter.Milliseconds()
		req.TTLMillis = &ms
	}
	if req.ProvisionerTags, err = givenTags(opts.tags); err != nil {
		return err
	}
	if opts.startAt != "" {
		if req.AutostartSchedule, err = parseStartAt(opts.startAt, localZone()); err != nil {
			return err
		}
	}
	if name.Owner == sdk.Me { // the server checks another owner's logins
		if err := awaitLogins(ctx, client, g.Streams(), version); err != nil {
			return err
		}
	}
	if err := createParameters(g, cmd, client, name, template.Name, version, opts, &req); err != nil {
		return err
	}
	if !opts.yes && g.Streams().InTTY { // without a terminal the arguments are explicit enough
		if err := preview(ctx, g, client, version, req); err != nil {
			return err
		}
		if err := g.Confirm(cmd, false, fmt.Sprintf("Create the workspace %s from %s?", name, template.Name), true); err != nil {
			return err
		}
	}
	ws, err := client.CreateWorkspace(ctx, name.Owner, req)
	if err != nil {
		return createError(err, name, template.Name)
	}
	if opts.noWait {
		fmt.Fprintf(g.Streams().Err, "The build of %s is queued.\n", ws.FullName())
		sayWaiting(g, ws.LatestBuild.Job)
		return nil
	}
	if !ws.LatestBuild.Given() {
		if err := g.Follower(client).Build(ctx, ws, ws.LatestBuild); err != nil {
			return err
		}
	}
	if opts.wait || g.Streams().ErrTTY {
		if err := waitAgents(ctx, g, client, ws.ID); err != nil {
			return err
		}
	}
	return reportCreated(ctx, g, client, ws.ID, name.Owner == sdk.Me)
}

// reportCreated prints what to do next with the new workspace. Only its owner can connect.
func reportCreated(ctx context.Context, g *global.Flags, client *sdk.Client, id uuid.UUID, own bool) error {
	ws, err := client.Workspace(ctx, id)
	if err != nil {
		return err
	}
	out := g.Streams().Err
	agents := ws.LatestBuild.OuterAgents()
	is := func(test func(sdk.WorkspaceAgent) bool) int { return slices.IndexFunc(agents, test) }
	waiting := is(func(a sdk.WorkspaceAgent) bool { return a.Status != sdk.AgentConnected })
	failed := is(func(a sdk.WorkspaceAgent) bool {
		return a.LifecycleState == sdk.LifecycleStartError || a.LifecycleState == sdk.LifecycleStartTimeout
	})
	starting := is(func(a sdk.WorkspaceAgent) bool { return a.LifecycleState.Starting() })
	connect := ""
	if len(agents) > 0 && own {
		connect = " Connect: coder ssh " + shell.Word(ws.Name)
	}
	switch {
	case waiting >= 0 && agents[waiting].External:
		name := ws.FullName()
		if len(agents) > 1 {
			name += "." + agents[waiting].Name
		}
		fmt.Fprintf(out, "Created the workspace %s. Start its agent %s on its machine: coder external-workspaces agent-instructions %s", ws.FullName(), agents[waiting].Name, shell.Word(name))
	case waiting >= 0:
		fmt.Fprintf(out, "Created the workspace %s. Its agent %s has not connected yet: coder show %s", ws.FullName(),
			agents[waiting].Name, shell.Word(ws.FullName()))
	case failed >= 0:
		fmt.Fprintf(out, "Created the workspace %s, but a start script of its agent %s failed or took too long: coder logs %s", ws.FullName(), agents[failed].Name, shell.Word(ws.FullName()))
	case starting >= 0:
		fmt.Fprintf(out, "Created the workspace %s. Start scripts of its agent %s are still running.%s", ws.FullName(),
			agents[starting].Name, connect)
	case len(agents) > 0:
		fmt.Fprintf(out, "The workspace %s is ready.%s", ws.FullName(), connect)
	default:
		fmt.Fprintf(out, "Created the workspace %s.", ws.FullName())
	}
	fmt.Fprintln(out)
	return nil
}

// givenName returns the name from the argument.
func givenName(args []string) (target.Name, error) {
	if len(args) == 0 {
		return target.Name{}, exit.Try(fault.New(fault.Invalid, "name the new workspace"),
			"coder create NAME --template TEMPLATE")
	}
	return newName(args[0])
}

func newName(text string) (target.Name, error) {
	name, err := target.ParseName(text)
	if err == nil && name.Agent != "" {
		err = exit.Try(fault.New(fault.Invalid, "%q names an agent; a workspace's name has no dots", text),
			"coder create NAME --template TEMPLATE")
	}
	return name, err
}

// askName asks for a name, and suggests that of the template, or the first with a number that the user has no workspace
// with.
func askName(ctx context.Context, g *global.Flags, client *sdk.Client, template string) (target.Name, error) {
	free, err := freeName(ctx, client, strings.ReplaceAll(template, "_", "-"))
	if err != nil {
		return target.Name{}, err
	}
	answer, err := g.Streams().Ask(ctx, tty.Question{
		Text: "Name of the workspace", Default: free, Check: func(answer string) error {
			_, err := newName(answer)
			return err
		},
	})
	if err != nil {
		return target.Name{}, err
	}
	return newName(answer)
}

func freeName(ctx context.Context, client *sdk.Client, name string) (string, error) {
	const limit = 32 // characters, the server's limit
	stem := strings.TrimRight(name[:min(len(name), limit-len("-99"))], "-")
	found, err := client.Workspaces(ctx, sdk.WorkspacesQuery{Q: "owner:me name:" + stem, Limit: 100})
	if err != nil {
		return "", err
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(found.Workspaces, func(w sdk.Workspace) bool { return strings.EqualFold(w.Name, name) })
	}
	free := name
	for n := 2; taken(free); n++ {
		end := fmt.Sprintf("-%d", n)
		free = strings.TrimRight(name[:min(len(name), limit-len(end))], "-") + end
	}
	return free, nil
}

// chooseTemplate returns the named template, or asks for one.
func chooseTemplate(
	ctx context.Context, g *global.Flags, client *sdk.Client, org organization.Flag, name string,
) (sdk.Template, error) {
	if name != "" {
		return org.Template(ctx, client, name)
	}
	templates, err := org.Templates(ctx, client, "")
	if err != nil {
		return sdk.Template{}, err
	}
	if len(templates) == 0 {
		return sdk.Template{}, exit.Try(fault.New(fault.NotFound, "no templates exist yet"),
			"coder templates init && coder templates push")
	}
	if !g.Streams().InTTY {
		return sdk.Template{}, exit.Try(fault.New(fault.Invalid, "--template is missing"),
			"coder create NAME --template %s", shell.Word(templates[0].Name))
	}
	if len(templates) == 1 {
		fmt.Fprintf(g.Streams().Err, "Using the only template, %s.\n", templates[0].Name)
		return templates[0], nil
	}
	q := tty.Question{Text: "Template"}
	for _, t := range templates {
		q.Choices = append(q.Choices, tty.Choice{Label: t.Name, Help: t.Description, Value: t.Name})
	}
	chosen, err := g.Streams().Ask(ctx, q)
	if err != nil {
		return sdk.Template{}, err
	}
	for _, t := range templates {
		if t.Name == chosen {
			return t, nil
		}
	}
	return sdk.Template{}, fault.New(fault.NotFound, "there is no template %q", chosen)
}

// createParameters fills the request's parameters from flags, a preset, another workspace and questions.
func createParameters(g *global.Flags, cmd *cobra.Command, client *sdk.Client, name target.Name, template string, version uuid.UUID, opts *createOptions, req *sdk.CreateWorkspaceRequest) error {
	ctx := cmd.Context()
	values, defaults, err := opts.params.Given()
	if err != nil {
		return err
	}
	owner := uuid.Nil
	if name.Owner != sdk.Me {
		user, err := client.User(ctx, name.Owner)
		if err != nil {
			return err
		}
		owner = user.ID
	}
	ask := form.Asker(ctx, g.Streams(), opts.yes)
	q := form.Query{
		Form: form.Of(ctx, client, version, owner), Values: values, Copied: map[string]string{}, Defaults: defaults,
		UseDefaults: opts.params.UseDefaults, Always: opts.always, Ephemeral: opts.params.AskEphemeral, Ask: ask,
	}
	if opts.copyFrom != "" {
		from, _, err := target.Find(ctx, client, opts.copyFrom)
		if err != nil {
			return err
		}
		copied, err := client.BuildParameters(ctx, from.LatestBuild.ID)
		if err != nil {
			return err
		}
		definitions, err := client.TemplateVersionParameters(ctx, from.LatestBuild.TemplateVersionID)
		if err != nil {
			return err
		}
		for _, v := range copied {
			if v.Masked && v.Value == "" || v.Computed {
				continue // belongs to another owner, or is computed for the new workspace
			}
			if !slices.ContainsFunc(definitions, func(d sdk.TemplateVersionParameter) bool { return d.Ephemeral && d.Name == v.Name }) {
				q.Copied[v.Name] = v.Value
			}
		}
	}
	presetName := opts.preset
	if presetName == "" && opts.copyFrom != "" {
		presetName = form.NoPreset
	}
	preset, err := form.ChoosePreset(ctx, client, version, presetName, g.Streams().Err, ask)
	if err != nil {
		return err
	}
	if preset.ID != uuid.Nil {
		req.TemplateVersionPresetID = preset.ID
		q.Preset = map[string]string{}
		for _, p := range preset.Parameters {
			q.Preset[p.Name] = p.Value
		}
	}
	req.RichParameterValues, err = q.Resolve()
	return exit.Try(err, "%s %s --template %s --parameter name=value", cmd.CommandPath(), shell.Word(req.Name),
		shell.Word(template))
}

// createError adds a hint to the server's error.
func createError(err error, name target.Name, template string) error {
	switch fault.CodeOf(err) {
	case fault.Conflict:
		if f := fault.As(err); slices.ContainsFunc(f.Fields, func(f fault.Field) bool { return f.Field == "external_auth" }) {
			return exit.Try(err, "Link the account, then run: coder create %s --template %s", shell.Word(name.Name),
				shell.Word(template))
		}
		return exit.Try(err, "coder show %s", shell.Word(name.String()))
	case fault.Invalid:
		return exit.Try(err, "coder create %s --template %s --parameter name=value", shell.Word(name.Name),
			shell.Word(template))
	}
	return err
}

// waitAgents waits until every agent of the workspace's latest build has connected and, if they block sign-ins, run its
// start scripts. It shows what it waits for. It does not wait for external agents, which start when their owner does
// so, nor for dev containers, which may take long.
func waitAgents(ctx context.Context, g *global.Flags, client *sdk.Client, id uuid.UUID) error {
	p := g.Streams().Progress()
	ok := false
	defer func() { p.Stop(ok) }()
	tick := time.NewTicker(target.PollInterval)
	defer tick.Stop()
	for {
		ws, err := client.Workspace(ctx, id)
		if err != nil {
			return err
		}
		var waiting *sdk.WorkspaceAgent
		for _, agent := range ws.LatestBuild.OuterAgents() {
			if agent.External && agent.Status != sdk.AgentConnected {
				continue // its owner starts it
			}
			if agent.Status != sdk.AgentConnected || agent.BlocksLogin() {
				waiting = &agent
				break
			}
		}
		if waiting == nil {
			ok = true
			return nil
		}
		if waiting.Status == sdk.AgentTimeout {
			return agentTimeout(ws, *waiting)
		}
		if waiting.Status == sdk.AgentConnected {
			p.Stage("Waiting for the start scripts of agent " + waiting.Name)
		} else {
			p.Stage("Waiting for agent " + waiting.Name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// agentTimeout returns the error for an agent that never connected.
func agentTimeout(ws sdk.Workspace, agent sdk.WorkspaceAgent) error {
	f := fault.New(fault.Unavailable, "%s, agent %s: %s", ws.FullName(), agent.Name, tty.Clean(agent.Health.String()))
	if agent.TroubleshootingURL != "" {
		f.Detail = "see " + agent.TroubleshootingURL
	}
	return exit.Try(f, "coder logs %s", shell.Word(ws.FullName()))
}
