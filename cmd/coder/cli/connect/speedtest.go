package connect

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/speed"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type speedtestOptions struct {
	duration  time.Duration
	direction string
	direct    bool
	format    string
	pcap      string
}

func speedtestCmd(g *global.Flags) *cobra.Command {
	var opts speedtestOptions
	cmd := &cobra.Command{
		Use:   "speedtest WORKSPACE",
		Short: "Measure the throughput to or from a workspace",
		Example: `  coder speedtest dev
  coder speedtest dev --direction up -t 10s -o json`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error { return runSpeedtest(cmd.Context(), g, args[0], opts) },
	}
	f := cmd.Flags()
	f.DurationVarP(&opts.duration, "time", "t", 5*time.Second, "duration of the test")
	f.StringVar(&opts.direction, "direction", "down", "direction of the transfer: down (from the workspace) or up")
	f.BoolVarP(&opts.direct, "direct", "d", false, "wait for a direct path before measuring")
	f.StringVarP(&opts.format, "output", "o", "table", "table or json")
	f.StringVar(&opts.pcap, "pcap-file", "", "explain how to capture the packets of a test")
	f.Lookup("pcap-file").Hidden = true // scripts pass it
	return cmd
}

// speedInterval is one row of the result. Other programs read these names.
type speedInterval struct {
	Start      float64 `json:"start_time_seconds"`
	End        float64 `json:"end_time_seconds"`
	Throughput float64 `json:"throughput_mbits"`
	bytes      int64
}

func runSpeedtest(ctx context.Context, g *global.Flags, text string, opts speedtestOptions) error {
	switch {
	case opts.pcap != "":
		return exit.Try(fault.New(fault.Invalid, "coder speedtest cannot capture packets, but tcpdump can while it runs"), "sudo tcpdump -i any -w %s", shell.Word(opts.pcap))
	case opts.direction != "down" && opts.direction != "up":
		return fault.New(fault.Invalid, "--direction must be down or up, not %q", opts.direction)
	case opts.duration <= 0 || opts.duration > speed.MaxSeconds*time.Second:
		return fault.New(fault.Invalid, "--time must be greater than zero and at most %ds", speed.MaxSeconds)
	case opts.format != "table" && opts.format != "json":
		return output.BadFormat(opts.format, "table or json")
	}
	t, err := reachMeasured(ctx, g, text)
	if err != nil {
		return err
	}
	defer target.LeaveQuickly(t.Mesh.Leave)
	if opts.direct {
		if err := waitDirect(ctx, t); err != nil {
			return err
		}
	}
	conn, err := t.Mesh.Dial(ctx, "tcp", t.Agent.ID, meshport.Speedtest)
	if err != nil {
		return t.WhyLost(ctx, err)
	}
	var intervals []speedInterval
	var last speed.Result
	result, err := speed.Run(ctx, conn, speed.Request{
		Direction: speed.Direction(opts.direction), Seconds: opts.duration.Seconds(),
	}, func(r speed.Result) {
		if r.Seconds-last.Seconds >= 1 {
			intervals = append(intervals, interval(last, r))
			last = r
		}
	})
	if err != nil {
		return t.WhyLost(ctx, fault.New(fault.Unavailable, "the test was interrupted: %w", err))
	}
	if result.Seconds-last.Seconds >= 0.1 && result.Bytes >= last.Bytes {
		intervals = append(intervals, interval(last, result))
	}
	return printSpeed(g, intervals, interval(speed.Result{}, result), opts.format)
}

func interval(from, to speed.Result) speedInterval {
	r := speed.Result{Bytes: to.Bytes - from.Bytes, Seconds: to.Seconds - from.Seconds}
	return speedInterval{Start: from.Seconds, End: to.Seconds, Throughput: r.Mbit(), bytes: r.Bytes}
}

func printSpeed(g *global.Flags, intervals []speedInterval, overall speedInterval, format string) error {
	out := g.Streams().Out
	if format == "json" {
		if intervals == nil {
			intervals = []speedInterval{}
		}
		return output.JSON(out, struct {
			Overall   speedInterval   `json:"overall"`
			Intervals []speedInterval `json:"intervals"`
		}{overall, intervals})
	}
	table := tty.Table{Header: []string{"interval", "transfer", "bandwidth"}}
	for _, i := range append(intervals, overall) {
		table.Add(fmt.Sprintf("%.2f-%.2f sec", i.Start, i.End), fmt.Sprintf("%.2f MBytes", float64(i.bytes)/1e6),
			fmt.Sprintf("%.2f Mbits/sec", i.Throughput))
	}
	return table.Write(out)
}

// waitDirect pings until packets travel directly.
func waitDirect(ctx context.Context, t *target.Target) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		pong, err := t.Mesh.Ping(ctx, t.Agent.ID)
		if err != nil {
			return exit.Try(fault.New(fault.Unavailable, "no direct path to %s was found: %w", t.Workspace.FullName(),
				err), "coder netcheck")
		}
		if pong.Direct {
			return nil
		}
		if !target.Sleep(ctx, 200*time.Millisecond) {
			return exit.Try(fault.New(fault.Unavailable, "no direct path to %s was found", t.Workspace.FullName()),
				"coder netcheck")
		}
	}
}
