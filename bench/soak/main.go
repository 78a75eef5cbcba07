// Command soak uses a deployment for a long time, and shows whether servers and agents keep what they should give back:
// memory, goroutines and descriptors. It starts the built program: two servers behind a load balancer, a provisioner,
// and workspaces that stay while others come and go. People's commands run all the time: create, ssh, port-forward,
// requests to an app, stop, start and delete.
//
//	go run ./bench/soak -coder build/coder [-duration 1h] [-out build/soak]
//
// It writes a line for each process every few seconds to OUT.csv, and a plot to OUT.svg, and prints how fast each
// quantity grew and whether that differs from zero. Heap profiles of the servers, each after a garbage collection, show
// what grew: those of OUT-server-0-warm.heap and OUT-server-0-end.heap differ by what go tool pprof -diff_base prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	coder := flag.String("coder", "build/coder", "program to use")
	duration := flag.Duration("duration", time.Hour, "how long the deployment is used")
	warm := flag.Duration("warm", 0, "how much of that does not count, because caches fill (default a quarter)")
	every := flag.Duration("every", 5*time.Second, "time between two samples")
	loops := flag.Int("loops", 2, "how many workspaces come and go at one time")
	out := flag.String("out", "build/soak", "where to write samples and plot, without .csv and .svg")
	keep := flag.Bool("keep", false, "keep the deployment's folder, with the logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if *warm == 0 {
		*warm = *duration / 4
	}
	err := soak(ctx, *coder, *duration, *warm, *every, *loops, *out, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func soak(
	ctx context.Context, coder string, duration, warm, every time.Duration, loops int, out string, keep bool,
) (err error) {
	d, err := open(ctx, coder, keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	w := &work{d: d, counts: map[string]int{}, failures: map[string]int{}}
	run, end := context.WithTimeout(ctx, duration)
	defer end()
	began := time.Now()
	var working sync.WaitGroup
	for i := range loops {
		working.Go(func() { w.comeAndGo(run, i) })
	}
	for _, name := range d.residents {
		working.Go(func() { w.stay(run, name) })
	}
	warmed := make(chan error, 1)
	go func() {
		pause(run, warm)
		warmed <- d.profile(ctx, out, "warm")
	}()
	samples := d.watch(run, began, every)
	working.Wait()
	profiled := errors.Join(<-warmed, d.profile(ctx, out, "end"))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if profiled != nil {
		return profiled
	}
	if err := write(out, samples); err != nil {
		return err
	}
	report(os.Stdout, samples, warm)
	return w.report()
}

// work is what people do.
type work struct {
	d *deployment

	mu       sync.Mutex // guards the fields below
	counts   map[string]int
	failures map[string]int
}

// do counts one action. What the end of the run interrupts does not count.
func (w *work) do(ctx context.Context, what string, f func() error) {
	err := f()
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
	if err != nil {
		w.failures[what+": "+err.Error()]++
	}
}

func (w *work) report() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		fmt.Fprintf(t, "%s\t%d\n", what, w.counts[what])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var errs []error
	for what, n := range w.failures {
		errs = append(errs, fmt.Errorf("%d × %s", n, what))
	}
	return errors.Join(errs...)
}

// comeAndGo creates, uses and deletes one workspace after the other.
func (w *work) comeAndGo(ctx context.Context, loop int) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("come%d-%d", loop, i)
		w.do(ctx, "create", func() error { return w.d.command(ctx, "create", name, "-t", "soak", "-y") })
		w.use(ctx, name)
		w.do(ctx, "stop", func() error { return w.d.command(ctx, "stop", name, "-y") })
		w.do(ctx, "start", func() error { return w.d.command(ctx, "start", name, "-y") })
		w.use(ctx, name)
		w.do(ctx, "delete", func() error { return w.d.command(ctx, "delete", name, "-y") })
	}
}

// stay uses a workspace that stays.
func (w *work) stay(ctx context.Context, name string) {
	for ctx.Err() == nil {
		w.use(ctx, name)
		pause(ctx, time.Second)
	}
}

// use does what a developer does in a running workspace.
func (w *work) use(ctx context.Context, name string) {
	w.do(ctx, "ssh", func() error {
		out, err := w.d.output(ctx, "ssh", name, "--", "echo", "hello")
		if err == nil && strings.TrimSpace(out) != "hello" {
			err = fmt.Errorf("it printed %q", out)
		}
		return err
	})
	w.do(ctx, "port-forward", func() error { return w.d.forward(ctx, name) })
	for range 5 {
		w.do(ctx, "app", func() error { return w.d.app(ctx, name) })
	}
	w.do(ctx, "list", func() error {
		out, err := w.d.output(ctx, "list")
		if err == nil && !strings.Contains(out, name) {
			err = fmt.Errorf("%s is not in the list", name)
		}
		return err
	})
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
