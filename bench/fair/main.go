// Command fair measures what streams of the mesh leave to others on one wire: two network namespaces, a wire with a
// rate and a queue between them (bench/slowlink), streams over bare UDP, and the kernel's TCP or a call of small UDP
// packets beside them. Then it measures what a transfer of a node leaves to its keystrokes: whole nodes, direct and
// through one connection to a relay (keys.go). It needs root.
//
//	go run ./bench/fair [-runs 3] [-only CUBIC]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
)

const (
	trip  = 40 * time.Millisecond
	apart = 2 * time.Second // from the start of the first flows to that of the others
	begin = 3 * time.Second // from then to the measurement
	spell = 15 * time.Second

	addrA, addrB = "10.99.0.1", "10.99.0.2"
)

// scene is one row of the table.
type scene struct {
	mbits float64
	queue time.Duration
	first []string // kinds of flows
	then  []string
}

var scenes = []scene{
	{100, 10 * time.Millisecond, []string{"CUBIC"}, []string{"stream"}},
	{100, 40 * time.Millisecond, []string{"CUBIC"}, []string{"stream"}},
	{100, 200 * time.Millisecond, []string{"CUBIC"}, []string{"stream"}},
	{100, 10 * time.Millisecond, []string{"stream"}, []string{"stream"}},
	{100, 40 * time.Millisecond, []string{"stream"}, []string{"stream"}},
	{100, 200 * time.Millisecond, []string{"stream"}, []string{"stream"}},
	{100, 40 * time.Millisecond, slices.Repeat([]string{"CUBIC"}, 4), slices.Repeat([]string{"stream"}, 4)},
	{10, 40 * time.Millisecond, []string{"call"}, []string{"stream"}},
	{100, 10 * time.Millisecond, []string{"stream"}, nil},
	{100, 10 * time.Millisecond, []string{"CUBIC"}, []string{"CUBIC"}},
}

func (s scene) name() string {
	text := strings.Join(s.first, ", ")
	if len(s.then) > 0 {
		text += "; " + strings.Join(s.then, ", ")
	}
	return text
}

// outcome is what one run of a scene measured.
type outcome struct {
	first, then float64 // Mbit/s
	dropped     float64 // percent of the packets that reached the wire's queue
	lost        float64 // percent of the call's packets
	wait        float64 // ms that 95 of 100 of the call's packets take longer than the shortest at most
}

func main() {
	runs := flag.Int("runs", 3, "runs of each scene; the table shows medians")
	only := flag.String("only", "", "measure only scenes with this flow: CUBIC, call or stream; "+
		"or keys, and of these direct or relayed")
	far := flag.Bool("far", false, "be the far end of a keys scene")
	near := flag.Bool("near", false, "be the near end of a keys scene")
	relayed := flag.Bool("relayed", false, "the near end uses the relay")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	switch {
	case *far:
		err = farEnd()
	case *near:
		err = nearEnd(ctx, *relayed)
	default:
		err = measure(ctx, *runs, *only)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fair:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, runs int, only string) error {
	if os.Getuid() != 0 {
		return errors.New("network namespaces need root: run it as root")
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "WIRE\tFLOWS: FIRST; THEN\tFIRST, Mbit/s\tTHEN, Mbit/s\tDROPPED\tCALL: LOST; WAITS")
	for _, s := range scenes {
		if only != "" && !slices.Contains(append(slices.Clone(s.first), s.then...), only) {
			continue
		}
		var all []outcome
		for range runs {
			o, err := s.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name(), err)
			}
			all = append(all, o)
		}
		voice := ""
		if slices.Contains(s.first, "call") {
			voice = fmt.Sprintf("%s%%; %s ms", spread(all, func(o outcome) float64 { return o.lost }),
				spread(all, func(o outcome) float64 { return o.wait }))
		}
		fmt.Fprintf(table, "%.0f Mbit/s, queue %v\t%s\t%s\t%s\t%s%%\t%s\n", s.mbits, s.queue, s.name(),
			spread(all, func(o outcome) float64 { return o.first }), spread(all,
				func(o outcome) float64 { return o.then }),
			spread(all, func(o outcome) float64 { return o.dropped }), voice)
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return measureKeys(ctx, runs, only)
}

// spread returns the median of a figure, with the least and the most.
func spread[T any](all []T, of func(T) float64) string {
	var values []float64
	for _, o := range all {
		values = append(values, of(o))
	}
	slices.Sort(values)
	return fmt.Sprintf("%.3g (%.3g–%.3g)", values[len(values)/2], values[0], values[len(values)-1])
}

// run measures a scene once.
func (s scene) run(ctx context.Context) (o outcome, err error) {
	w, err := newWire(ctx, slowlink.Options{Delay: trip / 2, Rate: s.mbits * 1e6 / 8, Queue: s.queue})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	var flows []flow
	defer func() {
		for _, f := range flows {
			f.close()
		}
	}()
	start := func(kinds []string) error {
		for _, kind := range kinds {
			f, err := newFlow(kind, w.a, w.b, 4000+len(flows))
			if err != nil {
				return fmt.Errorf("start %s: %w", kind, err)
			}
			flows = append(flows, f)
		}
		return nil
	}
	if err := start(s.first); err != nil {
		return o, err
	}
	if err := pause(ctx, apart); err != nil {
		return o, err
	}
	if err := start(s.then); err != nil {
		return o, err
	}
	if err := pause(ctx, begin); err != nil {
		return o, err
	}
	before := make([]int64, len(flows))
	for i, f := range flows {
		before[i] = f.bytes()
		if c, ok := f.(*call); ok {
			c.reset()
		}
	}
	dropped := w.link.Dropped()
	if err := pause(ctx, spell); err != nil {
		return o, err
	}
	o.dropped = float64(w.link.Dropped() - dropped)
	var carried float64 // packets of 1400 bytes
	for i, f := range flows {
		got := float64(f.bytes() - before[i])
		carried += got / 1400
		if i < len(s.first) {
			o.first += got * 8 / 1e6 / spell.Seconds()
		} else {
			o.then += got * 8 / 1e6 / spell.Seconds()
		}
		if c, ok := f.(*call); ok {
			o.lost, o.wait = c.result()
		}
	}
	o.dropped = 100 * o.dropped / (carried + o.dropped)
	return o, nil
}

// wire is two namespaces with a wire between them.
type wire struct {
	a, b string
	made []string // of these
	link *slowlink.Link
}

func newWire(ctx context.Context, opts slowlink.Options) (w *wire, err error) {
	w = &wire{a: fmt.Sprintf("fair%da", os.Getpid()), b: fmt.Sprintf("fair%db", os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	for _, ns := range []string{w.a, w.b} {
		if err := ip(ctx, "netns", "add", ns); err != nil {
			return nil, err
		}
		w.made = append(w.made, ns)
		if err := ip(ctx, "-n", ns, "link", "set", "lo", "up"); err != nil {
			return nil, err
		}
	}
	w.link, err = slowlink.Join(slowlink.End{Namespace: w.a, Device: "wire0", Address: addrA + "/24"},
		slowlink.End{Namespace: w.b, Device: "wire1", Address: addrB + "/24"}, opts)
	return w, err
}

func (w *wire) close(ctx context.Context) error {
	var errs []error
	if w.link != nil {
		errs = append(errs, w.link.Close())
	}
	for _, ns := range w.made {
		errs = append(errs, ip(context.WithoutCancel(ctx), "netns", "del", ns))
	}
	return errors.Join(errs...)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func ip(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
