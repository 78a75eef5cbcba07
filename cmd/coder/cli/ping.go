package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/tty"
	"github.com/codermesh/codermesh/tailnet"
)

// introduceTimeout bounds how long commands that measure wait for an agent.
const introduceTimeout = 15 * time.Second

type pingOptions struct {
	count   int
	timeout time.Duration
	wait    time.Duration
}

func (a *app) pingCmd() *cobra.Command {
	var o pingOptions
	cmd := &cobra.Command{
		Use:   "ping WORKSPACE",
		Short: "Measure the path to a workspace",
		Long: `Measure the path to a workspace. Each line says whether packets travel peer to peer (p2p) or through a relay (proxied); the first ones may
be relayed while a direct path is being looked for. It fails when nothing answers.`,
		Example: `  coder ping dev
  coder ping dev -n 3`,
		Args: argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.ping(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
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
	wait, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	t, err := a.reach(wait, reachOptions{name: name})
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return nil, Try(fault.New(fault.Unavailable, "the agent of %s was not introduced within %s", name, introduceTimeout), "coder show %s", name)
	}
	return t, err
}

func (a *app) ping(ctx context.Context, text string, o pingOptions) error {
	if o.count < 0 || o.timeout <= 0 || o.wait < 0 {
		return fault.New(fault.Invalid, "--num and --wait must not be negative, --timeout must be above zero")
	}
	t, err := a.reachMeasured(ctx, text)
	if err != nil {
		return err
	}
	defer leaveQuickly(t.mesh.Close)
	var got []tailnet.Pong
	sent := 0
	for o.count == 0 || sent < o.count {
		if sent > 0 && !sleep(ctx, o.wait) {
			break
		}
		sent++
		once, cancel := context.WithTimeout(ctx, o.timeout)
		pong, err := t.mesh.Ping(once, t.agent.ID)
		cancel()
		if ctx.Err() != nil {
			sent--
			break
		}
		if err != nil {
			fmt.Fprintf(a.streams().Out, "no answer from %s within %s\n", t.workspace.Name, o.timeout)
			continue
		}
		got = append(got, pong)
		fmt.Fprintf(a.streams().Out, "pong from %s %s in %s\n", t.workspace.Name, pathWords(pong), latency(pong.Latency))
	}
	if err := a.pingSummary(t, sent, got); err != nil {
		return err
	}
	if len(got) == 0 && sent > 0 {
		return t.whyLost(ctx, Try(fault.New(fault.Unavailable, "%s did not answer", fullName(t.workspace)), "coder show %s", fullName(t.workspace)))
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

func latency(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

func (a *app) pingSummary(t *target, sent int, got []tailnet.Pong) error {
	if sent == 0 {
		return nil
	}
	table := tty.Table{Header: []string{"workspace", "sent", "received", "lost", "min", "avg", "max", "path"}}
	row := []string{t.workspace.Name, fmt.Sprint(sent), fmt.Sprint(len(got)), fmt.Sprintf("%d%%", (sent-len(got))*100/sent), "", "", "", ""}
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

// sleep returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *app) netcheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "netcheck",
		Short:   "Print what this machine's network allows, as JSON",
		Example: `  coder netcheck`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			client, err := a.client(ctx)
			if err != nil {
				return err
			}
			mesh, err := a.joinMesh(client, reachOptions{})
			if err != nil {
				return err
			}
			defer leaveQuickly(mesh.Close)
			if _, err := mesh.Joined(ctx); err != nil {
				return err
			}
			node, err := mesh.Node()
			if err != nil {
				return err
			}
			report, err := node.Netcheck(ctx)
			if err != nil {
				return fault.New(fault.Unavailable, "the network cannot be checked: %w", err)
			}
			return printJSON(a.streams().Out, struct {
				Server string         `json:"server"`
				Report tailnet.Report `json:"report"`
				Node   tailnet.Status `json:"node"`
			}{client.URL().String(), report, node.Status()})
		},
	}
}
