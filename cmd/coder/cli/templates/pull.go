package templates

import (
	"context"
	"fmt"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

type pullOptions struct {
	tar, zip bool
	version  string
	yes      bool
	org      organization.Flag
}

func templatesPullCmd(g *global.Flags) *cobra.Command {
	var opts pullOptions
	cmd := &cobra.Command{
		Use:   "pull TEMPLATE [folder]",
		Short: "Download a template's source into a folder",
		Example: `  coder templates pull docker
  coder templates pull docker --tar >docker.tar`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return runPull(g, cmd, args, opts) },
	}
	f := cmd.Flags()
	f.BoolVar(&opts.tar, "tar", false, "write a tar archive to standard output")
	f.BoolVar(&opts.zip, "zip", false, "write a zip archive to standard output")
	f.StringVar(&opts.version, "version", "", "name of the version (default the active one)")
	opts.org.AddLookup(cmd)
	flags.Yes(cmd, &opts.yes)
	cmd.MarkFlagsMutuallyExclusive("tar", "zip")
	return cmd
}

func runPull(g *global.Flags, cmd *cobra.Command, args []string, opts pullOptions) error {
	ctx := cmd.Context()
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	t, err := opts.org.Template(ctx, client, args[0])
	if err != nil {
		return err
	}
	version, err := findVersion(ctx, client, t, opts.version)
	if err != nil {
		return err
	}
	if opts.tar || opts.zip {
		format := map[bool]string{true: "zip", false: "tar"}[opts.zip]
		return client.Download(ctx, version.Job.FileID, format, tty.Raw(g.Streams().Out))
	}
	dir := t.Name
	if len(args) == 2 {
		dir = args[1]
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		if err := g.Confirm(cmd, opts.yes, "Overwrite what is in "+dir+"?", false); err != nil {
			return err
		}
	}
	if err := pullInto(ctx, client, version.Job.FileID, dir); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Version %s of %s is in %s.\n", version.Name, t.Name, dir)
	return nil
}

// pullInto unpacks a stored archive into a folder.
func pullInto(ctx context.Context, client *sdk.Client, file uuid.UUID, dir string) error {
	temp, err := os.CreateTemp("", "coder-template-*.tar")
	if err != nil {
		return fmt.Errorf("make temporary file: %w", err)
	}
	defer os.Remove(temp.Name())
	defer temp.Close()
	if err := client.Download(ctx, file, "tar", temp); err != nil {
		return err
	}
	if _, err := temp.Seek(0, 0); err != nil {
		return fmt.Errorf("read temporary file: %w", err)
	}
	return unpack(temp, dir)
}
