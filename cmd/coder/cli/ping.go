package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/tty"
	"github.com/codermesh/codermesh/meshclient"
	"github.com/codermesh/codermesh/tailnet"
)

// introduceTimeout bounds how long commands that measure wait for an agent.
const introduceTimeout = 15 * time.Second

type pingOptions struct {
	count   int
	timeout time.Duration
	wait    time.Duration
	// provisioner: the name is a provisioner's, also where a workspace has the same.
	provisioner bool
}

func (a *app) pingCmd() *cobra.Command {
	var o pingOptions
	cmd := &cobra.Command{
		Use:   "ping NAME",
		Short: "Measure the path to a workspace or a provisioner",
		Long: `Measure the path to a workspace, or to a provisioner that one may see ("coder provisioner list"). Each line says whether packets travel
peer to peer (p2p) or through a relay (proxied); the first ones may be relayed while a direct path is being looked for. It fails
when nothing answers.`,
		Example: `  coder ping dev
  coder ping dev -n 3
  coder ping rack-2 --provisioner`,
		Args: argument("workspace's or provisioner's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.ping(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.provisioner, "provisioner", false, "treat NAME as a provisioner")
	f.IntVarP(&o.count, "num", "n", 10, "how many pings; 0 goes on until interrupted")
	f.DurationVarP(&o.timeout, "timeout", "t", 5*time.Second, "how long to wait for an answer")
	f.DurationVar(&o.wait, "wait", time.Second, "pause between two pings")
	return cmd
}

// reachMeasured is reach for commands that measure: nothing is started, and an agent that is not there is an error soon.
func (a *app) reachMeasured(ctx context.Context, text string) (*target, error) {
	name, err := parseWorkspaceName(text)
	if err != nil {
		return nil, err
	}
	opts, err := a.reachOptions(ctx, name)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	t, err := reach(wait, opts)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return nil, Try(fault.New(fault.Unavailable, "the agent of %s was not introduced within %s", name, introduceTimeout), "coder show %s", name)
	}
	return t, err
}

// pinged is what is being measured: an agent, or a provisioner.
type pinged struct {
	kind, name string
	id         uuid.UUID
	mesh       *meshclient.Client
	whyLost    func(context.Context) error // when nothing answered
}

// pinged finds a workspace with the name, or else a provisioner, and waits until it is introduced.
func (a *app) pinged(ctx context.Context, text string, provisioner bool) (pinged, error) {
	if !provisioner {
		t, err := a.reachMeasured(ctx, text)
		switch code := fault.CodeOf(err); {
		case err == nil:
			return pinged{"workspace", t.workspace.Name, t.agent.ID, t.mesh, func(ctx context.Context) error {
				return t.whyLost(ctx, Try(fault.New(fault.Unavailable, "%s did not answer", t.workspace.FullName()), "coder show %s", t.workspace.FullName()))
			}}, nil
		case code != fault.NotFound && code != fault.Invalid: // a provisioner's name need not look like a workspace's
			return pinged{}, err
		}
		p, found, perr := a.reachProvisioner(ctx, text)
		if perr != nil || found {
			return p, perr
		}
		if fault.CodeOf(err) == fault.NotFound {
			err = Try(fault.New(fault.NotFound, "there is no workspace and no provisioner %s, or you may not see it", text), "coder list; coder provisioner list")
		}
		return pinged{}, err
	}
	p, found, err := a.reachProvisioner(ctx, text)
	if err == nil && !found {
		err = Try(fault.New(fault.NotFound, "there is no provisioner %s, or you may not see it", text), "coder provisioner list")
	}
	return p, err
}

// reachProvisioner is reach for a provisioner. found is false where there is none with the name.
func (a *app) reachProvisioner(ctx context.Context, name string) (p pinged, found bool, err error) {
	opts, err := a.reachOptions(ctx, workspaceName{})
	if err != nil {
		return p, false, err
	}
	daemons, err := opts.client.ProvisionerDaemons(ctx, sdk.DefaultOrganization)
	if err != nil {
		return p, false, err
	}
	i := slices.IndexFunc(daemons, func(d sdk.ProvisionerDaemon) bool { return d.Name == name })
	if i < 0 {
		return p, false, nil
	}
	d := daemons[i]
	if d.Status == sdk.ProvisionerOffline {
		return p, true, Try(fault.New(fault.Unavailable, "the provisioner %s is offline, last seen %s", name, agoPtr(d.LastSeenAt)), "coder provisioner list")
	}
	mesh := joinMesh(opts)
	wait, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	if err := mesh.Introduce(wait, d.ID); err != nil {
		mesh.Close()
		if wait.Err() != nil && ctx.Err() == nil {
			err = Try(fault.New(fault.Unavailable, "the provisioner %s was not introduced within %s", name, introduceTimeout), "coder provisioner list")
		}
		return p, true, err
	}
	return pinged{"provisioner", name, d.ID, mesh, func(context.Context) error {
		return Try(fault.New(fault.Unavailable, "the provisioner %s did not answer", name), "coder provisioner list")
	}}, true, nil
}

func (a *app) ping(ctx context.Context, text string, o pingOptions) error {
	if o.count < 0 || o.timeout <= 0 || o.wait < 0 {
		return fault.New(fault.Invalid, "--num and --wait must not be negative, --timeout must be above zero")
	}
	p, err := a.pinged(ctx, text, o.provisioner)
	if err != nil {
		return err
	}
	defer leaveQuickly(p.mesh.Leave)
	var got []tailnet.Pong
	sent := 0
	for o.count == 0 || sent < o.count {
		if sent > 0 && !sleep(ctx, o.wait) {
			break
		}
		sent++
		once, cancel := context.WithTimeout(ctx, o.timeout)
		pong, err := p.mesh.Ping(once, p.id)
		cancel()
		if ctx.Err() != nil {
			sent--
			break
		}
		if err != nil {
			fmt.Fprintf(a.streams().Out, "no answer from %s within %s\n", p.name, o.timeout)
			continue
		}
		got = append(got, pong)
		fmt.Fprintf(a.streams().Out, "pong from %s %s in %s\n", p.name, pathWords(pong), latency(pong.Latency))
	}
	if err := a.pingSummary(p, sent, got); err != nil {
		return err
	}
	if len(got) == 0 && sent > 0 {
		return p.whyLost(ctx)
	}
	return nil
}

// pathWords say how a ping travelled.
func pathWords(p tailnet.Pong) string {
	if p.Direct {
		return "p2p via " + p.Endpoint.String()
	}
	return fmt.Sprintf("proxied via relay %q", p.Region)
}

func (a *app) pingSummary(p pinged, sent int, got []tailnet.Pong) error {
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
		row[4], row[5], row[6] = latency(slices.Min(all)), latency(sum/time.Duration(len(got))), latency(slices.Max(all))
		row[7] = "proxied"
		if got[len(got)-1].Direct {
			row[7] = "p2p"
		}
	}
	table.Add(row...)
	fmt.Fprintln(a.streams().Out)
	return table.Write(a.streams().Out)
}
