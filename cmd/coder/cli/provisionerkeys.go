package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/sdk"
)

func (a *app) provisionerKeysCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Aliases: []string{"key"}, Short: "Manage provisioner keys",
		Long: `Look after the keys with which provisioners join. A key has a name and fixed tags: its provisioners have those and no others. The server
keeps only its hash.`,
		Example: "  coder provisioner keys create chicago --tag environment=on_prem --tag data_center=chicago",
	}
	cmd.AddCommand(a.keysCreateCmd(), a.keysListCmd(), a.keysDeleteCmd())
	return cmd
}

func (a *app) keysCreateCmd() *cobra.Command {
	var tags []string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key and print it, once",
		Long: `Make a key and print it on standard output. Nobody can read it again. A machine becomes a provisioner with it:
CODER_PROVISIONER_DAEMON_KEY=… coder provisionerd start --url URL`,
		Example: `  coder provisioner keys create chicago --tag environment=on_prem --tag data_center=chicago
  coder provisioner keys create ci > key`,
		Args: argument("key's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parsePairs("tag", tags)
			if err != nil {
				return err
			}
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			made, err := client.CreateProvisionerKey(cmd.Context(), sdk.DefaultOrganization, sdk.CreateProvisionerKeyRequest{Name: args[0], Tags: wanted})
			if err != nil {
				return Try(err, "coder provisioner keys list")
			}
			fmt.Fprintf(a.streams().Err, "Created the key %s. It is not shown again:\n", args[0])
			_, err = fmt.Fprintln(a.streams().Out, made.Key)
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&tags, "tag", "t", nil, "tag key=value of the key's provisioners; may be repeated")
	return cmd
}

func (a *app) keysListCmd() *cobra.Command {
	out := output[sdk.ProvisionerKey]{columns: []column[sdk.ProvisionerKey]{
		{"name", func(k sdk.ProvisionerKey) string { return k.Name }},
		{"tags", func(k sdk.ProvisionerKey) string { return tagWords(k.Tags) }},
		{"created at", func(k sdk.ProvisionerKey) string { return ago(k.CreatedAt) }},
		{"id", func(k sdk.ProvisionerKey) string { return k.ID.String() }},
	}, initial: []string{"name", "tags", "created at"}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List keys",
		Example: `  coder provisioner keys list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			keys, err := client.ProvisionerKeys(cmd.Context(), sdk.DefaultOrganization)
			if err != nil {
				return err
			}
			return out.print(a.streams().Out, keys)
		},
	}
	out.flags(cmd)
	return cmd
}

func (a *app) keysDeleteCmd() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm", "remove"},
		Short:   "Delete a key and disconnect its provisioners",
		Long: `Delete a key and disconnect its provisioners at once. What they run is interrupted, and those builds fail with the state that they
have reached.`,
		Example: `  coder provisioner keys delete chicago`,
		Args:    argument("key's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.confirm(cmd, yes, "Delete the key "+args[0]+" and disconnect its provisioners?", false); err != nil {
				return err
			}
			if err := client.DeleteProvisionerKey(cmd.Context(), sdk.DefaultOrganization, args[0]); err != nil {
				return Try(err, "coder provisioner keys list")
			}
			fmt.Fprintf(a.streams().Err, "The key %s has been deleted.\n", args[0])
			return nil
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}
