package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/agent/speed"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/tty"
)

type speedtestOptions struct {
	duration  time.Duration
	direction string
	direct    bool
	format    string
}

func (a *app) speedtestCmd() *cobra.Command {
	var o speedtestOptions
	cmd := &cobra.Command{
		Use:   "speedtest WORKSPACE",
		Short: "Measure how fast bytes travel to or from a workspace",
		Example: `  coder speedtest dev
  coder speedtest dev --direction up -t 10s -o json`,
		Args: argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.speedtest(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.DurationVarP(&o.duration, "time", "t", 5*time.Second, "how long")
	f.StringVar(&o.direction, "direction", "down", "down: from the workspace, up: to it")
	f.BoolVarP(&o.direct, "direct", "d", false, "wait for a direct path first")
	f.StringVarP(&o.format, "output", "o", "table", "table or json")
	return cmd
}

// speedInterval is one row of the result. Other programs read these names.
type speedInterval struct {
	Start      float64 `json:"start_time_seconds"`
	End        float64 `json:"end_time_seconds"`
	Throughput float64 `json:"throughput_mbits"`
	bytes      int64
}

func (a *app) speedtest(ctx context.Context, text string, o speedtestOptions) error {
	switch {
	case o.direction != "down" && o.direction != "up":
		return fault.New(fault.Invalid, "--direction is down or up, not %q", o.direction)
	case o.duration <= 0 || o.duration > speed.MaxSeconds*time.Second:
		return fault.New(fault.Invalid, "--time must be above zero and at most %ds", speed.MaxSeconds)
	case o.format != "table" && o.format != "json":
		return badFormat(o.format, "table or json")
	}
	t, err := a.reachMeasured(ctx, text)
	if err != nil {
		return err
	}
	defer leaveQuickly(t.mesh.Leave)
	if o.direct {
		if err := a.waitDirect(ctx, t); err != nil {
			return err
		}
	}
	conn, err := t.mesh.Dial(ctx, "tcp", t.agent.ID, meshport.Speedtest)
	if err != nil {
		return t.whyLost(ctx, err)
	}
	var intervals []speedInterval
	var last speed.Result
	result, err := speed.Run(ctx, conn, speed.Request{Direction: speed.Direction(o.direction), Seconds: o.duration.Seconds()}, func(r speed.Result) {
		if r.Seconds-last.Seconds >= 1 {
			intervals = append(intervals, interval(last, r))
			last = r
		}
	})
	if err != nil {
		return t.whyLost(ctx, fault.New(fault.Unavailable, "the test broke: %w", err))
	}
	if result.Seconds-last.Seconds >= 0.1 && result.Bytes >= last.Bytes {
		intervals = append(intervals, interval(last, result))
	}
	return a.printSpeed(intervals, interval(speed.Result{}, result), o.format)
}

func interval(from, to speed.Result) speedInterval {
	r := speed.Result{Bytes: to.Bytes - from.Bytes, Seconds: to.Seconds - from.Seconds}
	return speedInterval{Start: from.Seconds, End: to.Seconds, Throughput: r.Mbit(), bytes: r.Bytes}
}

func (a *app) printSpeed(intervals []speedInterval, overall speedInterval, format string) error {
	out := a.streams().Out
	if format == "json" {
		if intervals == nil {
			intervals = []speedInterval{}
		}
		return printJSON(out, struct {
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
func (a *app) waitDirect(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		pong, err := t.mesh.Ping(ctx, t.agent.ID)
		if err != nil {
			return Try(fault.New(fault.Unavailable, "no direct path to %s was found: %w", t.workspace.FullName(), err), "coder netcheck")
		}
		if pong.Direct {
			return nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return Try(fault.New(fault.Unavailable, "no direct path to %s was found", t.workspace.FullName()), "coder netcheck")
		}
	}
}
