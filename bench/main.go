// Command bench measures the product as its users experience it: whole processes, a real server with its own
// PostgreSQL, real Terraform, real workspaces on this machine. Each figure has a yardstick measured in the same run,
// because machines differ and neighbours are noisy: only the ratio can be compared.
//
//	go run ./bench -coder build/coder -out build/bench.json [-quick] [-before earlier.json]
//	go run ./bench -coder build/coder -wan [-rtt 100ms] [-loss 0.001]
//	go run ./bench -coder build/coder -docker [-quick]
//	go run ./bench -coder build/coder -devices
//	go run ./bench -coder build/coder -connect [-quick]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Min       float64 `json:"min,omitempty"`
	Max       float64 `json:"max,omitempty"`
	Goal      string  `json:"goal,omitempty"`
	Yardstick string  `json:"yardstick,omitempty"` // the cost of the same operation without the mesh
}

func main() {
	coder := flag.String("coder", "build/coder", "the program to measure")
	out := flag.String("out", "", "also write the rows as JSON to this file")
	before := flag.String("before", "", "compare with the rows that another run wrote to this file with -out")
	quick := flag.Bool("quick", false, "fewer runs, less data")
	docker := flag.Bool("docker", false,
		"measure the starter docker instead (needs a Docker engine and its Terraform provider)")
	stock := flag.Bool("devices", false, "measure a device with a stock WireGuard instead (needs root, wg and dig)")
	connected := flag.Bool("connect", false, "measure coder connect instead (needs root and dig)")
	far := flag.Bool("wan", false, "measure over a simulated long path instead (needs root)")
	trip := flag.Duration("rtt", 100*time.Millisecond, "its round trip")
	loss := flag.Float64("loss", 0, "probability that one of its two wires loses a packet")
	source := flag.Int64("source", 0, "for the program's own use: send so many bytes")
	drain := flag.String("drain", "", "for the program's own use: read from this address")
	flag.Parse()
	if *source > 0 || *drain != "" {
		err := errors.New("-source and -drain exclude each other")
		switch {
		case *drain == "":
			err = serveBytes(*source)
		case *source == 0:
			err = drainAll(*drain)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(*coder, *out, *before, func(dir, coder string) ([]row, error) {
		if *far {
			w := &wan{dir: dir, coder: coder, runs: 5, megabytes: 40, trip: *trip, loss: *loss}
			err := w.measure(ctx)
			return w.rows, err
		}
		d := &day{dir: dir, coder: coder, listen: "127.0.0.1", runs: 15, megabytes: 400, idle: 50}
		if *quick {
			d.runs, d.megabytes, d.idle = 5, 100, 5
		}
		if *docker {
			d.listen = "0.0.0.0" // containers reach the server by the address of the engine's bridge
			err := d.measure(ctx, d.starter)
			return d.rows, err
		}
		if *stock {
			err := d.measure(ctx, d.devices)
			return d.rows, err
		}
		if *connected {
			d.listen = "0.0.0.0" // the laptop is in another namespace
			err := d.measure(ctx, d.connect)
			return d.rows, err
		}
		err := d.measure(ctx, d.setUp, d.sessions, d.bulk, d.forward, d.memory, d.stopAndStart, d.restart, d.fleet,
			d.claims)
		return d.rows, err
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(coder, out, before string, measure func(dir, coder string) ([]row, error)) error {
	coder, err := filepath.Abs(coder)
	if err != nil {
		return err
	}
	earlier, err := earlierValues(before)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rows, err := measure(dir, coder)
	if err := errors.Join(err, printRows(os.Stdout, rows, earlier)); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	text, err := json.MarshalIndent(rows, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

// earlierValues reads what a run wrote. It maps names of rows to their values, and is empty without a file.
func earlierValues(file string) (values map[string]float64, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rows []row
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	values = make(map[string]float64, len(rows))
	for _, r := range rows {
		values[r.Name] = r.Value
	}
	return values, nil
}

// printRows prints a table, with a column for the values of an earlier run if there are some.
func printRows(out io.Writer, rows []row, earlier map[string]float64) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	column := func(text string) string {
		if earlier == nil {
			return ""
		}
		return text + "\t"
	}
	fmt.Fprintln(w, "WHAT\tMEDIAN\t"+column("BEFORE")+"MIN–MAX\tGOAL\tYARDSTICK IN THIS RUN")
	for _, r := range rows {
		spread, then := "", "-"
		if r.Max > 0 {
			spread = fmt.Sprintf("%.4g–%.4g", r.Min, r.Max)
		}
		if v, ok := earlier[r.Name]; ok {
			then = fmt.Sprintf("%.4g", v)
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%s%s\t%s\t%s\n", r.Name, r.Value, r.Unit, column(then), spread, r.Goal,
			r.Yardstick)
	}
	return w.Flush()
}
