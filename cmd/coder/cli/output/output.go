// Package output prints the results of commands: lists as tables or JSON, times and durations in readable form. It
// knows no server.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// Column is one column of a table of Ts.
type Column[T any] struct {
	name string
	text func(T) string
}

// Col returns a column. The name is in lower case; text renders an item's cell.
func Col[T any](name string, text func(T) string) Column[T] { return Column[T]{name, text} }

// List prints a list as a table or as JSON.
type List[T any] struct {
	Format  string
	Chosen  []string
	Columns []Column[T]
	Initial []string // columns shown by default; nil means all
	// JSON returns what an item is as JSON; nil means the item.
	JSON func(T) any
}

// unknownColumn names the columns that there are.
func (o *List[T]) unknownColumn(name string) error {
	names := make([]string, len(o.Columns))
	for i, c := range o.Columns {
		names[i] = c.name
	}
	err := fault.New(fault.Invalid, "unknown column %q", name)
	if near := nearest.To(strings.TrimSpace(name), names); near != "" {
		return err.WithDetail("Did you mean %q? The columns are %s.", near, strings.Join(names, ", "))
	}
	return err.WithDetail("The columns are %s.", strings.Join(names, ", "))
}

// Flags adds --output and --column.
func (o *List[T]) Flags(cmd *cobra.Command) {
	names := make([]string, len(o.Columns))
	for i, c := range o.Columns {
		names[i] = c.name
	}
	if o.Initial == nil {
		o.Initial = names
	}
	cmd.Flags().StringVarP(&o.Format, "output", "o", "table", "table or json")
	cmd.Flags().StringSliceVarP(&o.Chosen, "column", "c", nil, "columns of the table, of: "+strings.Join(names, ", "))
	// Registering fails only for flags that do not exist.
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"json", "table"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("column", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		before := word[:strings.LastIndexByte(word, ',')+1] // columns that are named already
		var words []string
		for _, name := range names {
			if strings.HasPrefix(before+name, word) {
				words = append(words, before+name)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

func (o *List[T]) Print(w io.Writer, items []T) error {
	switch o.Format {
	case "json":
		if items == nil {
			items = []T{}
		}
		return JSON(w, o.shown(items))
	case "table":
	default:
		return BadFormat(o.Format, "table or json")
	}
	chosen := o.Chosen
	if len(chosen) == 0 {
		chosen = o.Initial
	}
	var columns []Column[T]
	table := tty.Table{}
	for _, name := range chosen {
		i := slices.IndexFunc(o.Columns,
			func(c Column[T]) bool { return strings.EqualFold(c.name, strings.TrimSpace(name)) })
		if i < 0 {
			return o.unknownColumn(name)
		}
		columns = append(columns, o.Columns[i])
		table.Header = append(table.Header, o.Columns[i].name)
	}
	for _, item := range items {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = c.text(item)
		}
		table.Add(row...)
	}
	table.Style = StatusStyle(w, table.Header)
	return table.Write(w)
}

// shown returns items as JSON shows them.
func (o *List[T]) shown(items []T) any {
	if o.JSON == nil {
		return items
	}
	all := make([]any, len(items))
	for i, item := range items {
		all[i] = o.JSON(item)
	}
	return all
}

// tones are the colors of statuses, by their first word in lower case.
var tones = map[string]tty.Tone{
	"running": tty.Good, "connected": tty.Good, "succeeded": tty.Good, "active": tty.Good, "idle": tty.Good, "ready": tty.Good,
	"pending": tty.Busy, "starting": tty.Busy, "stopping": tty.Busy, "deleting": tty.Busy, "canceling": tty.Busy, "connecting": tty.Busy, "busy": tty.Busy,
	"failed": tty.Bad, "timeout": tty.Bad, "disconnected": tty.Bad, "suspended": tty.Bad,
	"stopped": tty.Quiet, "canceled": tty.Quiet, "deleted": tty.Quiet, "dormant": tty.Quiet, "offline": tty.Quiet,
}

// StatusStyle colors the column "status" of a table, if w is a terminal with colors. Otherwise it returns nil.
func StatusStyle(w io.Writer, header []string) func(column int, cell string) tty.Tone {
	if !tty.Colored(w) {
		return nil
	}
	return statusTone(header)
}

func statusTone(header []string) func(column int, cell string) tty.Tone {
	return func(column int, cell string) tty.Tone {
		if header[column] != "status" {
			return tty.Plain
		}
		word, _, _ := strings.Cut(strings.ToLower(cell), ",")
		return tones[word]
	}
}

// JSON prints a value. What controls a terminal is escaped: programs read the value unchanged.
func JSON(w io.Writer, v any) error {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, tty.EscapeJSON(text.String()))
	return err
}

func BadFormat(got, want string) error {
	return fault.New(fault.Invalid, "--output cannot be %q: it must be %s", got, want)
}

// Ago formats a time relative to now: "5m ago".
func Ago(t time.Time) string {
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

// AgoPtr is like Ago, for a time that may be nil.
func AgoPtr(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return Ago(*t)
}

// short formats a duration in its largest unit.
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

// Latency formats a round trip time.
func Latency(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
