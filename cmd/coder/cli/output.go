package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/tty"
)

// column is one column of a table of Ts.
type column[T any] struct {
	name string
	text func(T) string
}

// output prints a list as a table or as JSON.
type output[T any] struct {
	format  string
	chosen  []string
	columns []column[T]
	initial []string // shown when nothing is chosen; nil: all
}

// flags adds -o and -c.
func (o *output[T]) flags(cmd *cobra.Command) {
	names := make([]string, len(o.columns))
	for i, c := range o.columns {
		names[i] = c.name
	}
	if o.initial == nil {
		o.initial = names
	}
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "table or json")
	cmd.Flags().StringSliceVarP(&o.chosen, "column", "c", nil, "columns of the table, of: "+strings.Join(names, ", "))
}

func (o *output[T]) print(w io.Writer, items []T) error {
	switch o.format {
	case "json":
		if items == nil {
			items = []T{}
		}
		return printJSON(w, items)
	case "table":
	default:
		return badFormat(o.format, "table or json")
	}
	chosen := o.chosen
	if len(chosen) == 0 {
		chosen = o.initial
	}
	var columns []column[T]
	table := tty.Table{}
	for _, name := range chosen {
		i := slices.IndexFunc(o.columns, func(c column[T]) bool { return strings.EqualFold(c.name, strings.TrimSpace(name)) })
		if i < 0 {
			return fault.New(fault.Invalid, "there is no column %q", name)
		}
		columns = append(columns, o.columns[i])
		table.Header = append(table.Header, o.columns[i].name)
	}
	for _, item := range items {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = c.text(item)
		}
		table.Add(row...)
	}
	return table.Write(w)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func badFormat(got, want string) error {
	return fault.New(fault.Invalid, "the output format %q is not known: --output is %s", got, want)
}

// ago is a time as a person reads it.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	switch {
	case d < 0:
		return "in " + short(-d)
	case d < time.Second:
		return "now"
	default:
		return short(d) + " ago"
	}
}

// agoPtr is ago of a time that may be missing.
func agoPtr(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return ago(*t)
}

// short is a duration in its largest unit.
func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// latency is a round trip as a person reads it.
func latency(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
