package connect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/meshclient"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// introduceTimeout bounds how long measurements wait for an introduction.
const introduceTimeout = 15 * time.Second

type pingOptions struct {
	count   int
	timeout time.Duration
	wait    time.Duration
	// provisioner is set if the name is a provisioner's, even if a workspace has the same name.
	provisioner bool
	format      string
	clock, utc  bool // begin lines with the time
}

func pingCmd(g *global.Flags) *cobra.Command {
	var opts pingOptions
	cmd := &cobra.Command{
		Use:   "ping NAME",
		Short: "Measure the path to a workspace or a provisioner",
		Long: `Measure the path to a workspace, or to a provisioner that you may see ("coder provisioner list"). Each line says whether packets travel
peer to peer (p2p) or through a relay (proxied). The first packets may be relayed while the peers look for a direct path. The command fails if
nothing answers.

At the end, the command names the server that each of the two peers is connected to, and the servers whose relays they use.`,
		Example: `  coder ping dev
  coder ping dev -n 3
  coder ping dev -n 3 -o json
  coder ping rack-2 --provisioner`,
		Args: flags.Argument("workspace's or provisioner's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return runPing(cmd.Context(), g, args[0], opts) },
	}
	f := cmd.Flags()
	f.BoolVar(&opts.provisioner, "provisioner", false, "treat NAME as a provisioner")
	f.IntVarP(&opts.count, "num", "n", 10, "number of pings; 0 means until interrupted")
	f.StringVarP(&opts.format, "output", "o", "table", "table or json")
	f.DurationVarP(&opts.timeout, "timeout", "t", 5*time.Second, "time to wait for an answer")
	f.BoolVar(&opts.clock, "time", false, "begin each line with the time of the answer")
	f.BoolVar(&opts.utc, "utc", false, "with --time, show the time in UTC")
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
		return nil, exit.Try(fault.New(fault.Unavailable, "the agent of %s could not be reached within %s", name,
			introduceTimeout), "coder show %s", shell.Word(name.String()))
	}
	return t, err
}

// pinged is the peer to measure: an agent or a provisioner.
type pinged struct {
	kind, name string
	id         uuid.UUID
	client     *sdk.Client
	mesh       *meshclient.Client
	whyLost    func(context.Context) error // called if nothing answered
}

// findPinged finds a workspace, or else a provisioner, by name and waits until it is introduced.
func findPinged(ctx context.Context, g *global.Flags, text string, provisioner bool) (pinged, error) {
	if !provisioner {
		t, err := reachMeasured(ctx, g, text)
		switch code := fault.CodeOf(err); {
		case err == nil:
			return pinged{"workspace", t.Workspace.Name, t.Agent.ID, t.Client, t.Mesh, func(ctx context.Context) error {
				return t.WhyLost(ctx, exit.Try(fault.New(fault.Unavailable, "%s did not answer",
					t.Workspace.FullName()), "coder show %s", shell.Word(t.Workspace.FullName())))
			}}, nil
		case code != fault.NotFound && code != fault.Invalid: // a provisioner's name need not look like a workspace's
			return pinged{}, err
		}
		p, found, perr := reachProvisioner(ctx, g, text)
		if perr != nil || found {
			return p, perr
		}
		if fault.CodeOf(err) == fault.NotFound {
			err = exit.Try(fault.New(fault.NotFound, "no workspace or provisioner %s found, or you do not have access to it", text), "coder list, or coder provisioner list")
		}
		return pinged{}, err
	}
	p, found, err := reachProvisioner(ctx, g, text)
	if err == nil && !found {
		err = exit.Try(fault.New(fault.NotFound, "there is no provisioner %s, or you may not see it", text),
			"coder provisioner list")
	}
	return p, err
}

// findProvisioner returns a provisioner of one of the organizations that the user sees.
func findProvisioner(
	ctx context.Context, client *sdk.Client, name string,
) (d sdk.ProvisionerDaemon, found bool, err error) {
	orgs, err := client.Organizations(ctx)
	if err != nil {
		return d, false, err
	}
	for _, org := range orgs {
		daemons, err := client.ProvisionerDaemons(ctx, org.ID.String())
		if err != nil {
			return d, false, err
		}
		i := slices.IndexFunc(daemons, func(d sdk.ProvisionerDaemon) bool { return d.Name == name })
		switch {
		case i < 0 || found && daemons[i].ID == d.ID: // built-in ones belong to all organizations
		case found:
			return d, true, exit.Try(fault.New(fault.Conflict, "several organizations have a provisioner %s", name),
				"Restart one of them with another --name.")
		default:
			d, found = daemons[i], true
		}
	}
	return d, found, nil
}

// reachProvisioner reaches a provisioner. found is false if none has the name.
func reachProvisioner(ctx context.Context, g *global.Flags, name string) (p pinged, found bool, err error) {
	opts, err := targetOptions(ctx, g, target.Name{})
	if err != nil {
		return p, false, err
	}
	d, found, err := findProvisioner(ctx, opts.Client, name)
	if err != nil || !found {
		return p, found, err
	}
	if d.Status == sdk.ProvisionerOffline {
		return p, true, exit.Try(fault.New(fault.Unavailable, "the provisioner %s is offline, last seen %s", name,
			output.AgoPtr(d.LastSeenAt)), "coder provisioner list")
	}
	mesh := target.Join(opts)
	wait, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	if err := mesh.Introduce(wait, d.ID); err != nil {
		mesh.Close()
		if wait.Err() != nil && ctx.Err() == nil {
			err = exit.Try(fault.New(fault.Unavailable, "the provisioner %s could not be reached within %s", name,
				introduceTimeout), "coder provisioner list")
		}
		return p, true, err
	}
	return pinged{"provisioner", name, d.ID, opts.Client, mesh, func(context.Context) error {
		return exit.Try(fault.New(fault.Unavailable, "the provisioner %s did not answer", name),
			"coder provisioner list")
	}}, true, nil
}

func runPing(ctx context.Context, g *global.Flags, text string, opts pingOptions) error {
	if opts.count < 0 || opts.timeout <= 0 || opts.wait < 0 {
		return fault.New(fault.Invalid,
			"--num and --wait must not be negative, and --timeout must be greater than zero")
	}
	if opts.format != "table" && opts.format != "json" {
		return output.BadFormat(opts.format, "table or json")
	}
	progress := g.Streams().Out
	if opts.format == "json" {
		progress = io.Discard
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
			fmt.Fprintf(progress, "%sno answer from %s within %s\n", opts.stamp(time.Now()), p.name, opts.timeout)
			continue
		}
		got = append(got, pong)
		fmt.Fprintf(progress, "%spong from %s %s in %s\n", opts.stamp(time.Now()), p.name, pathWords(pong),
			output.Latency(pong.Latency))
	}
	result := summarize(p, sent, got)
	if sent > 0 {
		result.place(ctx, g, p)
	}
	if opts.format == "json" {
		err = output.JSON(g.Streams().Out, result)
	} else {
		err = result.write(g)
	}
	if err != nil {
		return err
	}
	if len(got) == 0 && sent > 0 {
		return p.whyLost(ctx)
	}
	return nil
}

// stamp returns how a line begins.
func (opts *pingOptions) stamp(now time.Time) string {
	switch {
	case !opts.clock:
		return ""
	case opts.utc:
		return now.UTC().Format(time.RFC3339) + " "
	}
	return now.Format(time.RFC3339) + " "
}

// pathWords describes how a ping travelled.
func pathWords(p tailnet.Pong) string {
	if p.Direct {
		return "p2p via " + p.Endpoint.String()
	}
	return fmt.Sprintf("proxied via relay %q", p.Region)
}

// pingResult is the summary of a measurement. Servers are nil while unknown.
type pingResult struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"` // workspace or provisioner
	Sent     int     `json:"sent"`
	Received int     `json:"received"`
	Min      float64 `json:"min_ms"`
	Avg      float64 `json:"avg_ms"`
	Max      float64 `json:"max_ms"`
	Path     string  `json:"path"`  // of the last answer: p2p, proxied, or "" without an answer
	Relay    string  `json:"relay"` // that the last answer travelled through; "" if it did not
	// Server and RelayServer are this machine's, the others the peer's.
	Server          *uuid.UUID `json:"server_id"`
	RelayServer     *uuid.UUID `json:"relay_server_id"`
	PeerServer      *uuid.UUID `json:"peer_server_id"`
	PeerRelayServer *uuid.UUID `json:"peer_relay_server_id"`

	min, avg, max time.Duration
}

func summarize(p pinged, sent int, got []tailnet.Pong) pingResult {
	r := pingResult{Name: p.name, Kind: p.kind, Sent: sent, Received: len(got)}
	if len(got) == 0 {
		return r
	}
	var sum time.Duration
	var all []time.Duration
	for _, p := range got {
		sum += p.Latency
		all = append(all, p.Latency)
	}
	r.min, r.avg, r.max = slices.Min(all), sum/time.Duration(len(got)), slices.Max(all)
	millis := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	r.Min, r.Avg, r.Max = millis(r.min), millis(r.avg), millis(r.max)
	r.Path = "p2p"
	if last := got[len(got)-1]; !last.Direct {
		r.Path, r.Relay = "proxied", last.Region
	}
	return r
}

// place adds the servers. The measurement is complete without them, so it only logs why they are unknown.
func (r *pingResult) place(ctx context.Context, g *global.Flags, p pinged) {
	node, err := p.mesh.Node()
	if err != nil {
		g.Logger().Debug("cannot find own node", "err", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	at, err := target.Placements(ctx, p.client, node.ID(), p.id)
	if err != nil {
		g.Logger().Debug("cannot find the servers of the two peers", "err", err)
		return
	}
	known := func(id uuid.UUID) *uuid.UUID {
		if id == uuid.Nil {
			return nil
		}
		return &id
	}
	own, peer := at[node.ID()], at[p.id]
	r.Server, r.RelayServer, r.PeerServer, r.PeerRelayServer = known(own.Server), known(own.Relay), known(peer.Server), known(peer.Relay)
}

// placeTimeout bounds how long the command waits for the names of the servers.
const placeTimeout = 5 * time.Second

func (r *pingResult) write(g *global.Flags) error {
	if r.Sent == 0 {
		return nil
	}
	out := g.Streams().Out
	table := tty.Table{Header: []string{r.Kind, "sent", "received", "lost", "min", "avg", "max", "path"}}
	row := []string{r.Name, fmt.Sprint(r.Sent), fmt.Sprint(r.Received), fmt.Sprintf("%d%%", (r.Sent-r.Received)*100/r.Sent), "", "", "", r.Path}
	if r.Received > 0 {
		row[4], row[5], row[6] = output.Latency(r.min), output.Latency(r.avg), output.Latency(r.max)
	}
	table.Add(row...)
	fmt.Fprintln(out)
	if err := table.Write(out); err != nil || r.Server == nil {
		return err
	}
	short := func(id *uuid.UUID) string {
		if id == nil {
			return target.ShortID(uuid.Nil)
		}
		return target.ShortID(*id)
	}
	servers := tty.Table{Header: []string{"peer", "server", "relay of server"}}
	servers.Add("this machine", short(r.Server), short(r.RelayServer))
	servers.Add(r.Name, short(r.PeerServer), short(r.PeerRelayServer))
	fmt.Fprintln(out)
	return servers.Write(out)
}
