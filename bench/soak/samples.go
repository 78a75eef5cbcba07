package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// sample is what one process uses at one time. A quantity that is not known is negative.
type sample struct {
	process    string
	at         time.Duration // since the beginning
	quantities [len(quantities)]float64
}

// quantities are what is sampled.
var quantities = [...]struct{ name, unit string }{{"memory", "MB"}, {"goroutines", ""}, {"threads", ""}, {"descriptors", ""}}

// watch samples until ctx ends.
func (d *deployment) watch(ctx context.Context, began time.Time, every time.Duration) (samples []sample) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return samples
		}
		for _, p := range d.processes {
			samples = append(samples, sample{p.name, time.Since(began), p.use(ctx)})
		}
	}
}

// use returns what a process uses now.
func (p process) use(ctx context.Context) (use [len(quantities)]float64) {
	for i := range use {
		use[i] = -1
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return use // it has ended
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		n, _ := strconv.ParseFloat(fields[0], 64) // the kernel wrote it
		switch name {
		case "VmRSS":
			use[0] = n * 1024 / 1e6
		case "Threads":
			use[2] = n
		}
	}
	if names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid)); err == nil {
		use[3] = float64(len(names))
	}
	if p.pprof != "" {
		use[1] = goroutines(ctx, p.pprof)
	}
	return use
}

// goroutines asks a server how many it has: "goroutine profile: total 123" is the first line of its answer.
func goroutines(ctx context.Context, at string) float64 {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		return -1
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil {
		return -1
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(strings.TrimSpace(line), " ")+1:]), 64)
	if err != nil {
		return -1
	}
	return n
}

// profile writes a heap profile of each server, after a garbage collection, to OUT-server-0-WHEN.heap and so on.
func (d *deployment) profile(ctx context.Context, out, when string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	var errs []error
	for _, p := range d.processes {
		if p.pprof != "" {
			errs = append(errs, heap(ctx, p.pprof, out+"-"+strings.ReplaceAll(p.name, " ", "-")+"-"+when+".heap"))
		}
	}
	return errors.Join(errs...)
}

// heap writes a process's heap profile to a file.
func heap(ctx context.Context, at, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/debug/pprof/heap?gc=1", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("heap profile: %s", resp.Status)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// write writes the samples and their plot.
func write(out string, samples []sample) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	f, err := os.Create(out + ".csv")
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	head := []string{"seconds", "process"}
	for _, q := range quantities {
		head = append(head, strings.TrimSpace(q.name+" "+q.unit))
	}
	_ = w.Write(head) // Error reports it
	for _, s := range samples {
		row := []string{fmt.Sprintf("%.0f", s.at.Seconds()), s.process}
		for _, v := range s.quantities {
			text := ""
			if v >= 0 {
				text = strconv.FormatFloat(v, 'f', -1, 64)
			}
			row = append(row, text)
		}
		_ = w.Write(row)
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return os.WriteFile(out+".svg", []byte(plot(samples)), 0o644)
}

// series are the points of each process in time, for one quantity.
type series struct {
	process string
	x, y    []float64 // seconds, and the quantity
}

// of returns the series of a quantity, from a time on.
func of(samples []sample, quantity int, from time.Duration) (all []series) {
	for _, s := range samples {
		v := s.quantities[quantity]
		if v < 0 || s.at < from {
			continue
		}
		i := slices.IndexFunc(all, func(o series) bool { return o.process == s.process })
		if i < 0 {
			i, all = len(all), append(all, series{process: s.process})
		}
		all[i].x, all[i].y = append(all[i].x, s.at.Seconds()), append(all[i].y, v)
	}
	return all
}

const (
	// parts is how many parts a series is cut into. Samples depend on those just before them, means of long parts
	// hardly do.
	parts = 12
	// student is the 99.5 % quantile of Student's t distribution with parts-2 degrees of freedom.
	student = 3.169
)

// slope fits a line through the means of parts of a series. It returns the growth in each hour, and by how much that
// may be wrong with a probability of 99 %. ok is false if there are too few samples.
func (s series) slope() (growth, margin float64, ok bool) {
	if len(s.x) < 2*parts {
		return 0, 0, false
	}
	var x, y []float64
	for i := range parts {
		from, to := i*len(s.x)/parts, (i+1)*len(s.x)/parts
		x, y = append(x, mean(s.x[from:to])/3600), append(y, mean(s.y[from:to]))
	}
	mx, my := mean(x), mean(y)
	var xx, xy float64
	for i := range x {
		xx += (x[i] - mx) * (x[i] - mx)
		xy += (x[i] - mx) * (y[i] - my)
	}
	growth = xy / xx
	var rest float64
	for i := range x {
		off := y[i] - my - growth*(x[i]-mx)
		rest += off * off
	}
	return growth, student * math.Sqrt(rest/(parts-2)/xx), true
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// report prints how each quantity of each process began, ended and grew after the beginning that does not count.
func report(out io.Writer, samples []sample, warm time.Duration) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tQUANTITY\tFIRST\tLAST\tMOST\tGROWTH IN AN HOUR\t")
	for i, q := range quantities {
		for _, s := range of(samples, i, warm) {
			growth, margin, ok := s.slope()
			verdict := "too few samples"
			switch {
			case !ok:
			case growth > margin:
				verdict = "grows"
			case growth < -margin:
				verdict = "shrinks"
			default:
				verdict = "does not differ from zero"
			}
			tenth := max(len(s.y)/10, 1)
			fmt.Fprintf(w, "%s\t%s\t", s.process, strings.TrimSpace(q.name+" "+q.unit))
			fmt.Fprintf(w, "%.4g\t%.4g\t%.4g\t", mean(s.y[:tenth]), mean(s.y[len(s.y)-tenth:]), slices.Max(s.y))
			fmt.Fprintf(w, "%+.3g ± %.2g\t%s\n", growth, margin, verdict)
		}
	}
	_ = w.Flush() // samples.csv is written; standard output may be closed
}

// colors are those of the processes, in order.
var colors = []string{"#2563eb", "#dc2626", "#16a34a", "#9333ea", "#d97706", "#0891b2", "#4b5563"}

// plot draws a panel for each quantity as SVG.
func plot(samples []sample) string {
	const width, height, left, top = 900.0, 180.0, 70.0, 30.0
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n",
		width+left+20, float64(len(quantities))*(height+2*top))
	for i, q := range quantities {
		base := float64(i)*(height+2*top) + top
		all := of(samples, i, 0)
		most, last := 1.0, 1.0
		for _, s := range all {
			most, last = max(most, slices.Max(s.y)), max(last, slices.Max(s.x))
		}
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f">%s</text>`+"\n", left, base-8, strings.TrimSpace(q.name+" "+q.unit))
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" fill="none" stroke="#999"/>`+"\n", left, base, width, height)
		mark := func(x, y float64, text string) {
			fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="end">%s</text>`+"\n", x, y, text)
		}
		mark(left-6, base+10, fmt.Sprintf("%.4g", most))
		mark(left-6, base+height, "0")
		mark(left+width, base+height+16, fmt.Sprintf("%.3g min", last/60))
		for j, s := range all {
			color := colors[j%len(colors)]
			fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" points="`, color)
			for k := range s.x {
				fmt.Fprintf(&b, "%.1f,%.1f ", left+width*s.x[k]/last, base+height-height*s.y[k]/most)
			}
			fmt.Fprintf(&b, `"/><text x="%.0f" y="%.0f" fill="%s">%s</text>`+"\n", left+90*float64(j+2), base-8, color, s.process)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
