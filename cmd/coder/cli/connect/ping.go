package connect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/tty"
	"github.com/codermesh/codermesh/meshclient"
	"github.com/codermesh/codermesh/tailnet"
)

// introduceTimeout bounds how long measurements wait for an introduction.
const introduceTimeout = 15 * time.Second

type pingOptions struct {
	count   int
	timeout time.Duration
	wait    time.Duration
	// provisioner is set if the name is a provisioner's, even if a workspace has the same name.
	provisioner bool
}

func pingCmd(g *global.Flags) *cobra.Command {
	var opts pingOptions
	cmd := &cobra.Command{
		Use:   "ping NAME",
		Short: "Measure the path to a workspace or a provisioner",
		Long: `Measure the path to a workspace, or to a provisioner that you may see ("coder provisioner list"). Each line says whether packets travel
peer to peer (p2p) or through a relay (proxied). The first packets may be relayed while the peers look for a direct path. The command fails if
nothing answers.`,
		Example: `  coder ping dev
  coder ping dev -n 3
  coder ping rack-2 --provisioner`,
		Args: flags.Argument("workspace's or provisioner's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return runPing(cmd.Context(), g, args[0], opts) },
	}
	f := cmd.Flags()
	f.BoolVar(&opts.provisioner, "provisioner", false, "treat NAME as a provisioner")
	f.IntVarP(&opts.count, "num", "n", 10, "number of pings; 0 means until interrupted")
	f.DurationVarP(&opts.timeout, "timeout", "t", 5*time.Second, "time to wait for an answer")
	f.DurationVar(&opts.wait, "wait", time.Second, "time between two pings")
	return cmd
}

// reachMeasured reaches a workspace for a measurement: it starts nothing, and fails soon if the agent is missing.
func reachMeasured(ctx context.Context, g *global.Flags, text string) (*target.Target, error) {
	name, err := target.ParseName(text)
	if err != nil {
		return nil, err
	}
	opts, err := targetOptions(ctx, g, name)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	t, err := target.Reach(wait, opts)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return nil, exit.Try(fault.New(fault.Unavailable, "the agent of %s could not be reached within %s", name, introduceTimeout), "coder show %s", name)
	}
	return t, err
}

// pinged is the peer to measure: an agent or a provisioner.
type pinged struct {
	kind, name string
	id         uuid.UUID
	mesh       *meshclient.Client
	whyLost    func(context.Context) error // called if nothing answered
}

// findPinged finds a workspace, or else a provisioner, by name and waits until it is introduced.
func findPinged(ctx context.Context, g *global.Flags, text string, provisioner bool) (pinged, error) {
	if !provisioner {
		t, err := reachMeasured(ctx, g, text)
		switch code := fault.CodeOf(err); {
		case err == nil:
			return pinged{"workspace", t.Workspace.Name, t.Agent.ID, t.Mesh, func(ctx context.Context) error {
				return t.WhyLost(ctx, exit.Try(fault.New(fault.Unavailable, "%s did not answer", t.Workspace.FullName()), "coder show %s", t.Workspace.FullName()))
			}}, nil
		case code != fault.NotFound && code != fault.Invalid: // a provisioner's name need not look like a workspace's
			return pinged{}, err
		}
		p, found, perr := reachProvisioner(ctx, g, text)
		if perr != nil || found {
			return p, perr
		}
		if fault.CodeOf(err) == fault.NotFound {
			err = exit.Try(fault.New(fault.NotFound, "there is no workspace and no provisioner %s, or you may not see it", text), "coder list, or coder provisioner list")
		}
		return pinged{}, err
	}
	p, found, err := reachProvisioner(ctx, g, text)
	if err == nil && !found {
		err = exit.Try(fault.New(fault.NotFound, "there is no provisioner %s, or you may not see it", text), "coder provisioner list")
	}
	return p, err
}

// reachProvisioner reaches a provisioner. found is false if none has the name.
func reachProvisioner(ctx context.Context, g *global.Flags, name string) (p pinged, found bool, err error) {
	opts, err := targetOptions(ctx, g, target.Name{})
	if err != nil {
		return p, false, err
	}
	daemons, err := opts.Client.ProvisionerDaemons(ctx, sdk.DefaultOrganization)
	if err != nil {
		return p, false, err
	}
	i := slices.IndexFunc(daemons, func(d sdk.ProvisionerDaemon) bool { return d.Name == name })
	if i < 0 {
		return p, false, nil
	}
	d := daemons[i]
	if d.Status == sdk.ProvisionerOffline {
		return p, true, exit.Try(fault.New(fault.Unavailable, "the provisioner %s is offline, last seen %s", name, output.AgoPtr(d.LastSeenAt)), "coder provisioner list")
	}
	mesh := target.Join(opts)
	wait, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	if err := mesh.Introduce(wait, d.ID); err != nil {
		mesh.Close()
		if wait.Err() != nil && ctx.Err() == nil {
			err = exit.Try(fault.New(fault.Unavailable, "the provisioner %s could not be reached within %s", name, introduceTimeout), "coder provisioner list")
		}
		return p, true, err
	}
	return pinged{"provisioner", name, d.ID, mesh, func(context.Context) error {
		return exit.Try(fault.New(fault.Unavailable, "the provisioner %s did not answer", name), "coder provisioner list")
	}}, true, nil
}

func runPing(ctx context.Context, g *global.Flags, text string, opts pingOptions) error {
	if opts.count < 0 || opts.timeout <= 0 || opts.wait < 0 {
		return fault.New(fault.Invalid, "--num and --wait must not be negative, and --timeout must be greater than zero")
	}
	p, err := findPinged(ctx, g, text, opts.provisioner)
	if err != nil {
		return err
	}
	defer target.LeaveQuickly(p.mesh.Leave)
	var got []tailnet.Pong
	sent := 0
	for opts.count == 0 || sent < opts.count {
		if sent > 0 && !target.Sleep(ctx, opts.wait) {
			break
		}
		sent++
		once, cancel := context.WithTimeout(ctx, opts.timeout)
		pong, err := p.mesh.Ping(once, p.id)
		cancel()
		if ctx.Err() != nil {
			sent--
			break
		}
		if err != nil {
			fmt.Fprintf(g.Streams().Out, "no answer from %s within %s\n", p.name, opts.timeout)
			continue
		}
		got = append(got, pong)
		fmt.Fprintf(g.Streams().Out, "pong from %s %s in %s\n", p.name, pathWords(pong), output.Latency(pong.Latency))
	}
	if err := pingSummary(g, p, sent, got); err != nil {
		return err
	}
	if len(got) == 0 && sent > 0 {
		return p.whyLost(ctx)
	}
	return nil
}

// pathWords describes how a ping travelled.
func pathWords(p tailnet.Pong) string {
	if p.Direct {
		return "p2p via " + p.Endpoint.String()
	}
	return fmt.Sprintf("proxied via relay %q", p.Region)
}

func pingSummary(g *global.Flags, p pinged, sent int, got []tailnet.Pong) error {
	if sent == 0 {
		return nil
	}
	table := tty.Table{Header: []string{p.kind, "sent", "received", "lost", "min", "avg", "max", "path"}}
	row := []string{p.name, fmt.Sprint(sent), fmt.Sprint(len(got)), fmt.Sprintf("%d%%", (sent-len(got))*100/sent), "", "", "", ""}
	if len(got) > 0 {
		var sum time.Duration
		var all []time.Duration
		for _, p := range got {
			sum += p.Latency
			all = append(all, p.Latency)
		}
		row[4], row[5], row[6] = output.Latency(slices.Min(all)), output.Latency(sum/time.Duration(len(got))), output.Latency(slices.Max(all))
		row[7] = "proxied"
		if got[len(got)-1].Direct {
			row[7] = "p2p"
		}
	}
	table.Add(row...)
	fmt.Fprintln(g.Streams().Out)
	return table.Write(g.Streams().Out)
}
