// Command scale measures how much one server carries: idle agents, a restart with all of them connected, builds, open
// dashboards, participants of the coordinator, three linked servers of which one dies, a large database, and the relay.
// It starts the built program with a database of its own and generates the load, and it prints each figure beside the
// one that is asked for.
//
//	go run ./bench/scale -coder build/coder [-parts agents,restart] [-agents 1000] [-out build/bench-scale.json]
//
// The agents are package agent's, with real mesh nodes, many in this process. They differ from those of workspaces in
// that they have no scripts and no process of their own. The provisioners are package provisionerd's, with an executor
// that creates an agent instead of running Terraform. Load and server share the machine, so a machine with more cores
// shows better times; the CPU figures are the server's alone.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// figure is one line of the table.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Asked is the limit for Value: an upper one, or with AtLeast a lower one. Nil asks for nothing.
	Asked   *float64 `json:"asked,omitempty"`
	AtLeast bool     `json:"at_least,omitempty"`
	Note    string   `json:"note,omitempty"`
}

func (f figure) asked() string {
	switch {
	case f.Asked == nil:
		return ""
	case f.AtLeast:
		return fmt.Sprintf("≥ %.4g", *f.Asked)
	}
	return fmt.Sprintf("≤ %.4g", *f.Asked)
}

// verdict returns whether the value is what is asked for.
func (f figure) verdict() string {
	switch {
	case f.Asked == nil:
		return ""
	case f.AtLeast && f.Value >= *f.Asked, !f.AtLeast && f.Value <= *f.Asked:
		return "met"
	}
	return "missed"
}

// table collects figures, and shows each at once.
type table struct{ figures []figure }

func (t *table) add(f figure) {
	t.figures = append(t.figures, f)
	fmt.Fprintf(os.Stderr, "  %s: %.4g %s %s\n", f.Name, f.Value, f.Unit, f.Note)
}

// info adds a figure for which there is no limit.
func (t *table) info(name string, value float64, unit, note string) {
	t.add(figure{Name: name, Value: value, Unit: unit, Note: note})
}

// atMost and atLeast add a figure with a limit.
func (t *table) atMost(name string, value float64, unit string, limit float64, note string) {
	t.add(figure{Name: name, Value: value, Unit: unit, Asked: &limit, Note: note})
}

func (t *table) atLeast(name string, value float64, unit string, limit float64, note string) {
	t.add(figure{Name: name, Value: value, Unit: unit, Asked: &limit, AtLeast: true, Note: note})
}

func (t *table) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEASURED\tASKED\t\tNOTE")
	for _, f := range t.figures {
		fmt.Fprintf(w, "%s\t%.4g %s\t%s\t%s\t%s\n", f.Name, f.Value, f.Unit, f.asked(), f.verdict(), f.Note)
	}
	return w.Flush()
}

// parts are what can be measured, in this order. Those of a deployment share one.
var parts = []struct {
	name string
	of   func(*bench, context.Context) error
}{
	{"coordinator", (*bench).coordinator},
	{"cluster", (*bench).cluster},
	{"relay", (*bench).relay},
	{"builds", (*bench).builds},
	{"agents", (*bench).agents},
	{"restart", (*bench).restart},
	{"dashboards", (*bench).dashboards},
	{"history", (*bench).history},
}

// bench is one run.
type bench struct {
	table
	coder      string
	agentCount int
	idle       time.Duration // for which idle agents are watched
	peers      int
	streams    int
	queue      int
	workspaces int
	logLines   int
	keep       bool // the folder
	statements bool // show what each costs
	profile    string

	deployed *deployment // nil until a part needs it
	fleet    *fleet      // of agents; nil until they run
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// start measures what the flags choose.
func start() error {
	if id, ok := meshArgument(); ok {
		return serveMesh(id, os.Stdin, os.Stdout)
	}
	b := &bench{}
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	flag.StringVar(&b.coder, "coder", "build/coder", "program to measure")
	chosen := flag.String("parts", strings.Join(names, ","), "what to measure, separated by commas")
	out := flag.String("out", "", "file for the figures as JSON")
	flag.IntVar(&b.agentCount, "agents", 1000, "number of agents")
	flag.DurationVar(&b.idle, "idle", time.Minute,
		"time for which idle agents are watched, after twice that time in which they settle")
	flag.IntVar(&b.peers, "peers", 10_000, "number of participants of the coordinator")
	flag.IntVar(&b.streams, "dashboards", 500, "number of open dashboards")
	flag.IntVar(&b.queue, "queue", 1000, "number of builds that wait")
	flag.IntVar(&b.workspaces, "workspaces", 10_000, "number of workspaces in the large database, with ten builds each")
	flag.IntVar(&b.logLines, "log-lines", 10_000_000, "number of log lines in the large database")
	flag.BoolVar(&b.keep, "keep", false, "keep the deployment's folder, with the server's log")
	flag.BoolVar(&b.statements, "statements", false,
		"show the most expensive statements of each part (needs the extension pg_stat_statements)")
	serve := flag.Bool("serve-relay", false, "for the program's own use: serve a relay")
	flag.StringVar(&b.profile, "profile", "",
		"file for a CPU profile of the load in the last part (for the server's, set CODER_PPROF_ENABLE)")
	flag.Parse()
	if *serve {
		return serveRelay()
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return b.run(ctx, strings.Split(*chosen, ","), names, *out)
}

func (b *bench) run(ctx context.Context, chosen, names []string, out string) (err error) {
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no part %q: choose from %s", name, strings.Join(names, ", "))
		}
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Fprintln(os.Stderr, "machine:", machine())
	last := -1
	for i, p := range parts {
		if slices.Contains(chosen, p.name) {
			last = i
		}
	}
	for i, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s (load %s)\n", p.name, load())
		if i == last && b.profile != "" {
			file, err := os.Create(b.profile)
			if err == nil {
				err = pprof.StartCPUProfile(file)
			}
			if err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		if err := p.of(b, ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", p.name, err), b.print())
		}
		if b.statements && b.deployed != nil {
			if err := b.deployed.showStatements(ctx); err != nil {
				return err
			}
		}
	}
	if err := b.print(); err != nil || out == "" {
		return err
	}
	text, err := json.MarshalIndent(b.figures, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

func (b *bench) close() error {
	if b.fleet != nil {
		b.fleet.close()
	}
	if b.deployed == nil {
		return nil
	}
	return b.deployed.close()
}
