package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func notificationsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "notifications", Aliases: []string{"notification"}, Short: "Pause, resume and test notifications",
		Long: `Pause, resume and test notifications. Administrators pause them for everyone, for example during maintenance: what happens meanwhile is
delivered after they resume. Choose what you are notified of on the page /account of the dashboard.`,
		Example: `  coder notifications pause
  coder notifications resume
  coder notifications test
  coder notifications custom "Build done" "The nightly build has finished."`,
	}
	cmd.AddCommand(
		notificationsSettingCmd(g, "pause", "Pause the delivery of notifications", true, "Notifications are paused."),
		notificationsSettingCmd(g, "resume", "Resume the delivery of notifications", false,
			"Notifications are delivered again."),
		notificationsTestCmd(g), notificationsCustomCmd(g),
	)
	return cmd
}

func notificationsSettingCmd(g *global.Flags, use, short string, pause bool, done string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Example: "  coder notifications " + use,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := client.UpdateNotificationsSettings(cmd.Context(), sdk.NotificationsSettings{
				NotifierPaused: pause,
			}); err != nil {
				return err
			}
			fmt.Fprintln(g.Streams().Err, done)
			return nil
		},
	}
}

func notificationsTestCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "test", Short: "Send a test notification to yourself", Args: cobra.NoArgs,
		Long:    `Send a test notification to yourself, by every method that the server is configured for. The server's log tells why one did not arrive.`,
		Example: `  coder notifications test`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := client.TestNotification(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintln(g.Streams().Err, "A test notification is on its way to you.")
			return nil
		},
	}
}

func notificationsCustomCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "custom TITLE MESSAGE", Short: "Send a notification to yourself", Args: cobra.ExactArgs(2),
		Long:    `Send a notification to yourself, for example from a script in a workspace when a long task ends.`,
		Example: `  make test; coder notifications custom "Tests ended" "make test ended with status $?"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := client.CustomNotification(cmd.Context(), sdk.CustomNotificationContent{
				Title: args[0], Message: args[1],
			}); err != nil {
				return err
			}
			fmt.Fprintln(g.Streams().Err, "The notification is on its way to you.")
			return nil
		},
	}
}
