package provisioners

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func provisionerKeysCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Aliases: []string{"key"}, Short: "Manage provisioner keys",
		Long: `Manage the keys that provisioners join with. A key has a name and fixed tags; its provisioners have exactly those tags, and run the jobs of the
key's organization. The server
stores only a hash of the key.`,
		Example: "  coder provisioner keys create chicago --tag environment=on_prem --tag data_center=chicago",
	}
	cmd.AddCommand(keysCreateCmd(g), keysListCmd(g), keysDeleteCmd(g))
	return cmd
}

func keysCreateCmd(g *global.Flags) *cobra.Command {
	var tags []string
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a key and print it once",
		Long: `Create a key and print it on standard output. It cannot be read again. To run a provisioner with it:
CODER_PROVISIONER_DAEMON_KEY=… coder provisionerd start --url URL`,
		Example: `  coder provisioner keys create chicago --tag environment=on_prem --tag data_center=chicago
  coder provisioner keys create ci > key
  coder provisioner keys create east-1 --org east`,
		Args: flags.Argument("key's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := flags.Pairs("tag", tags)
			if err != nil {
				return err
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			org, err := flag.Find(cmd.Context(), client)
			if err != nil {
				return err
			}
			made, err := client.CreateProvisionerKey(cmd.Context(), org.ID.String(), sdk.CreateProvisionerKeyRequest{
				Name: args[0], Tags: wanted,
			})
			if err != nil {
				return exit.Try(err, "coder provisioner keys list")
			}
			fmt.Fprintf(g.Streams().Err, "Created the key %s. It will not be shown again:\n", args[0])
			_, err = fmt.Fprintln(g.Streams().Out, made.Key)
			return err
		},
	}
	flag.Add(cmd)
	cmd.Flags().StringArrayVarP(&tags, "tag", "t", nil, "tag key=value of the key's provisioners; may be repeated")
	return cmd
}

func keysListCmd(g *global.Flags) *cobra.Command {
	var flag organization.Flag
	var org sdk.Organization
	out := output.List[sdk.ProvisionerKey]{Columns: []output.Column[sdk.ProvisionerKey]{
		output.Col("name", func(k sdk.ProvisionerKey) string { return k.Name }),
		output.Col("tags", func(k sdk.ProvisionerKey) string { return tagWords(k.Tags) }),
		output.Col("created at", func(k sdk.ProvisionerKey) string { return output.Ago(k.CreatedAt) }),
		output.Col("organization", func(sdk.ProvisionerKey) string { return org.Name }),
		output.Col("id", func(k sdk.ProvisionerKey) string { return k.ID.String() }),
	}, Initial: []string{"name", "tags", "created at", "organization"}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List keys",
		Example: `  coder provisioner keys list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if org, err = flag.Find(cmd.Context(), client); err != nil {
				return err
			}
			keys, err := client.ProvisionerKeys(cmd.Context(), org.ID.String())
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, keys)
		},
	}
	out.Flags(cmd)
	flag.Add(cmd)
	return cmd
}

func keysDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm", "remove"},
		Short:   "Delete a key and disconnect its provisioners",
		Long: `Delete a key and disconnect its provisioners at once. Builds that they run are interrupted and fail with the state that they
have reached.`,
		Example: `  coder provisioner keys delete chicago`,
		Args:    flags.Argument("key's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			org, err := flag.Find(cmd.Context(), client)
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Delete the key "+args[0]+" and disconnect its provisioners?", false); err != nil {
				return err
			}
			if err := client.DeleteProvisionerKey(cmd.Context(), org.ID.String(), args[0]); err != nil {
				return exit.Try(err, "coder provisioner keys list")
			}
			fmt.Fprintf(g.Streams().Err, "The key %s has been deleted.\n", args[0])
			return nil
		},
	}
	flag.Add(cmd)
	flags.Yes(cmd, &yes)
	return cmd
}
