package connect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func sshCACmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ssh-ca", Short: "Show or rotate the server's SSH certificate authorities",
		Long: `Show or rotate the server's SSH certificate authorities. One signs the host keys of the SSH gateway and of
workspaces, the other one the keys of users (coder ssh-cert).`,
		Example: `  coder ssh-ca show >> ~/.ssh/known_hosts
  coder ssh-ca rotate host`,
	}
	cmd.AddCommand(&cobra.Command{
		Use: "show", Short: "Print the lines for known_hosts by which OpenSSH knows the SSH gateway and workspaces",
		Example: `  coder ssh-ca show >> ~/.ssh/known_hosts`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			ca, err := client.SSHHostAuthority(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := authorityLines(ca.KnownHosts, workspaceHosts); err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Streams().Out, strings.Join(ca.KnownHosts, "\n"))
			return err
		},
	}, sshCARotateCmd(g))
	return cmd
}

func sshCARotateCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "rotate {host|user}", Short: "Make a new key for an SSH certificate authority",
		Long: `Make a new key for an SSH certificate authority. It signs from now on, and the present one counts until the next
rotation. Rotate twice to end what the present one has signed. After a rotation of the host CA, users take its new line
into known_hosts (coder ssh-ca show, or coder config-ssh), and workspaces present the new certificate within a day.`,
		Example: `  coder ssh-ca rotate host`,
		Args:    flags.Argument("authority, host or user,"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != sdk.SSHHostCA && args[0] != sdk.SSHUserCA {
				unknown := fault.New(fault.Invalid, "there is no SSH certificate authority %q", args[0])
				return exit.Try(unknown, "Name one of host and user")
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Make a new key for the SSH "+args[0]+" CA?", false); err != nil {
				return err
			}
			ca, err := client.RotateSSHAuthority(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The SSH %s CA has a new key: %s\n", args[0], ca.PublicKey)
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}
