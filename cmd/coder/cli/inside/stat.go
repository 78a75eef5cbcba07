package inside

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/usage"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type statOptions struct {
	host   bool
	format string
	prefix string
	path   string
	chosen []string // of the measurements; none means all
}

// measurements are the columns of "coder stat", in their order.
var measurements = []string{"container_cpu", "container_memory", "host_cpu", "host_memory", "home_disk"}

// statCmd needs no server: metadata scripts run it.
func statCmd(g *global.Flags) *cobra.Command {
	var opts statOptions
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Show CPU, memory and disk usage of this workspace",
		Long: `Show the resource usage of the container that this command runs in, or of the machine outside of containers. Templates use it
in their metadata scripts.`,
		Example: `  coder stat
  coder stat cpu
  coder stat mem --host --prefix Gi
  coder stat disk --path /home/coder -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runStat(cmd.Context(), g, opts) },
	}
	statFormat(cmd, &opts)
	cmd.Flags().StringSliceVarP(&opts.chosen, "column", "c", nil,
		"what to measure, of: "+strings.Join(measurements, ", ")+" (default all that can be measured)")
	cmd.AddCommand(
		statOne(g, "cpu", "Show CPU cores in use", &opts, statCPU, false),
		statOne(g, "mem", "Show memory in use", &opts, statMemory, true),
		statOne(g, "disk", "Show space in use on a file system", &opts, statDisk, true),
	)
	return cmd
}

func statFormat(cmd *cobra.Command, opts *statOptions) {
	cmd.Flags().StringVarP(&opts.format, "output", "o", "text", "text or json")
}

func statOne(g *global.Flags, name, short string, opts *statOptions, measure func(context.Context, *usage.Meter, statOptions) (usage.Amount, error), bytes bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Example: "  coder stat " + name + " -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			amount, err := measure(cmd.Context(), usage.New(), *opts)
			if err != nil {
				return fault.New(fault.Unavailable, "cannot measure this here: %w", err)
			}
			switch opts.format {
			case "json":
				return output.JSON(g.Streams().Out, amount)
			case "text":
			default:
				return output.BadFormat(opts.format, "text or json")
			}
			text, err := statText(amount, opts.prefix)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Streams().Out, text)
			return err
		},
	}
	statFormat(cmd, opts)
	if name != "disk" {
		cmd.Flags().BoolVar(&opts.host, "host", false, "measure the machine, even inside a container")
	} else {
		cmd.Flags().StringVar(&opts.path, "path", "/", "file or folder on the file system to measure")
	}
	if bytes {
		cmd.Flags().StringVar(&opts.prefix, "prefix", "",
			"unit prefix of the text output: Ki, Mi, Gi or Ti (default one that fits)")
	}
	return cmd
}

func statCPU(ctx context.Context, m *usage.Meter, opts statOptions) (usage.Amount, error) {
	if !opts.host {
		if amount, err := m.ContainerCPU(ctx); !errors.Is(err, usage.ErrNoContainer) {
			return amount, err
		}
	}
	return m.HostCPU(ctx)
}

func statMemory(_ context.Context, m *usage.Meter, opts statOptions) (usage.Amount, error) {
	if !opts.host {
		if amount, err := m.ContainerMemory(); !errors.Is(err, usage.ErrNoContainer) {
			return amount, err
		}
	}
	return m.HostMemory()
}

func statDisk(_ context.Context, m *usage.Meter, opts statOptions) (usage.Amount, error) {
	return m.Disk(opts.path)
}

// statText formats an amount as "1.2/8 cores (15%)", or "1.2 cores" without a limit.
func statText(a usage.Amount, prefix string) (string, error) {
	unit, scale := a.Unit, 1.0
	if a.Unit == "B" {
		largest := a.Used
		if a.Total != nil {
			largest = *a.Total
		}
		var err error
		if unit, scale, err = statScale(prefix, largest); err != nil {
			return "", err
		}
	}
	if a.Total == nil {
		return fmt.Sprintf("%.1f %s", a.Used/scale, unit), nil
	}
	text := fmt.Sprintf("%.1f/%s %s", a.Used/scale, strings.TrimSuffix(fmt.Sprintf("%.1f", *a.Total/scale), ".0"), unit)
	if *a.Total > 0 {
		text += fmt.Sprintf(" (%.0f%%)", math.Round(a.Used / *a.Total * 100))
	}
	return text, nil
}

// statScale returns a unit that users can read, by name or by the size of a number of bytes.
func statScale(prefix string, largest float64) (unit string, scale float64, err error) {
	prefixes := []string{"", "Ki", "Mi", "Gi", "Ti"}
	scale = 1
	for i, p := range prefixes {
		if prefix != "" && strings.EqualFold(p, strings.TrimSuffix(prefix, "B")) || prefix == "" &&
			(largest < 1024*scale || i == len(prefixes)-1) {
			return p + "B", scale, nil
		}
		scale *= 1024
	}
	return "", 0, fault.New(fault.Invalid, "--prefix must be Ki, Mi, Gi or Ti, not %q", prefix)
}

// runStat shows everything that can be measured.
func runStat(ctx context.Context, g *global.Flags, opts statOptions) error {
	m := usage.New()
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	all := map[string]func() (usage.Amount, error){
		"container_cpu":    func() (usage.Amount, error) { return m.ContainerCPU(ctx) },
		"container_memory": m.ContainerMemory,
		"host_cpu":         func() (usage.Amount, error) { return m.HostCPU(ctx) },
		"host_memory":      m.HostMemory,
		"home_disk":        func() (usage.Amount, error) { return m.Disk(home) },
	}
	chosen := opts.chosen
	if len(chosen) == 0 {
		chosen = measurements
	}
	out := map[string]usage.Amount{}
	table := tty.Table{Header: []string{"what", "used"}}
	for _, name := range chosen {
		key := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "_")
		measure := all[key]
		if measure == nil {
			return fault.New(fault.Invalid, "unknown column %q", name).
				WithDetail("The columns are %s.", strings.Join(measurements, ", "))
		}
		words := strings.ReplaceAll(key, "_", " ")
		amount, err := measure()
		if errors.Is(err, usage.ErrNoContainer) {
			continue
		}
		if err != nil {
			return fault.New(fault.Unavailable, "cannot measure %s here: %w", words, err)
		}
		text, err := statText(amount, "")
		if err != nil {
			return err
		}
		out[key] = amount
		table.Add(words, text)
	}
	switch opts.format {
	case "json":
		return output.JSON(g.Streams().Out, out)
	case "text":
		return table.Write(g.Streams().Out)
	}
	return output.BadFormat(opts.format, "text or json")
}
