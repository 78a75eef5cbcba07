// Command bench measures the product as its users meet it: whole processes, a real server with its own PostgreSQL, real
// Terraform, real workspaces on this machine. Beside each figure stands a yardstick measured in the same run, because
// machines differ and neighbours are noisy: the ratio is what can be compared.
//
//	go run ./bench -coder build/coder -out build/bench.json [-quick]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"
)

// row is one line of the table.
type row struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Min       float64 `json:"min,omitempty"`
	Max       float64 `json:"max,omitempty"`
	Goal      string  `json:"goal,omitempty"`
	Yardstick string  `json:"yardstick,omitempty"` // what the same thing costs without the mesh
}

func main() {
	coder := flag.String("coder", "build/coder", "the program to measure")
	out := flag.String("out", "", "also write the rows as JSON to this file")
	quick := flag.Bool("quick", false, "fewer runs, less data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *coder, *out, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, coder, out string, quick bool) error {
	coder, err := filepath.Abs(coder)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &day{dir: dir, coder: coder, runs: 15, megabytes: 400}
	if quick {
		d.runs, d.megabytes = 5, 100
	}
	if err := d.measure(ctx); err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEDIAN\tMIN–MAX\tGOAL\tYARDSTICK IN THIS RUN")
	for _, r := range d.rows {
		spread := ""
		if r.Max > 0 {
			spread = fmt.Sprintf("%.4g–%.4g", r.Min, r.Max)
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, spread, r.Goal, r.Yardstick)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	text, err := json.MarshalIndent(d.rows, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}
