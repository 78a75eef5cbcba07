package account

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func webhooksCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhooks", Aliases: []string{"webhook"},
		Short: "Send events of workspaces, builds, agents, users and templates to other services",
		Long:  `Send events of workspaces, builds, agents, users and templates to other services, as signed HTTP requests. Requires the role Owner.`,
		Example: `  coder webhooks add ci https://ci.example.com/coder --event build.failed
  coder webhooks test ci
  coder webhooks deliveries ci
  coder webhooks replay ci --since 2h`,
	}
	cmd.AddCommand(webhookAddCmd(g), webhookListCmd(g), webhookRemoveCmd(g), webhookDeliveriesCmd(g),
		webhookReplayCmd(g), webhookTestCmd(g), webhookSecretCmd(g),
		webhookSwitchCmd(g, "enable", "Enable a webhook that was disabled", true), webhookSwitchCmd(g, "disable",
			"Disable a webhook", false))
	return cmd
}

func webhookAddCmd(g *global.Flags) *cobra.Command {
	var req sdk.CreateWebhookRequest
	cmd := &cobra.Command{
		Use: "add NAME URL", Short: "Add a webhook, and print its signing secret",
		Long: `Add a webhook, and print its signing secret on standard output. The secret and the URL cannot be shown again. Messages are signed by the Standard
Webhooks scheme, for which libraries exist. Slack and Teams need --format instead, and do not check signatures.`,
		Example: `  coder webhooks add ci https://ci.example.com/coder --event build.failed --event workspace.*
  coder webhooks add chat https://hooks.slack.com/services/T0/B0/XXXX --format slack --event build.failed`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			req.Name, req.URL = args[0], args[1]
			made, err := client.CreateWebhook(cmd.Context(), req)
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Added the webhook %s. Its signing secret is not shown again:\n",
				made.Webhook.Name)
			_, err = fmt.Fprintln(g.Streams().Out, made.Secret)
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar((*[]string)(&req.Events), "event", nil,
		"type of events to send, such as build.failed, or build.* for all of a kind; can be repeated (default all)")
	f.StringVar(&req.Format, "format", sdk.WebhookStandard, "what to send: standard, slack or teams")
	return cmd
}

func webhookListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.Webhook]{Columns: []output.Column[sdk.Webhook]{
		output.Col("name", func(w sdk.Webhook) string { return w.Name }),
		output.Col("destination", func(w sdk.Webhook) string { return w.Origin }),
		output.Col("events", func(w sdk.Webhook) string { return strings.Join(w.Events, " ") }),
		output.Col("format", func(w sdk.Webhook) string { return w.Format }),
		output.Col("status", webhookStatus),
		output.Col("created at", func(w sdk.Webhook) string { return output.Ago(w.CreatedAt) }),
		output.Col("reason", func(w sdk.Webhook) string { return w.DisabledReason }),
		output.Col("id", func(w sdk.Webhook) string { return w.ID.String() }),
	}, Initial: []string{"name", "destination", "events", "format", "status"}}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List webhooks",
		Example: `  coder webhooks list
  coder webhooks list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			list, err := client.Webhooks(cmd.Context())
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, list)
		},
	}
	out.Flags(cmd)
	return cmd
}

func webhookStatus(w sdk.Webhook) string {
	switch {
	case w.DisabledAt != nil:
		return "disabled"
	case w.FailingSince != nil:
		return "failing since " + output.Ago(*w.FailingSince)
	}
	return "enabled"
}

func webhookRemoveCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm", "delete"}, Short: "Remove a webhook",
		Long:    `Remove a webhook with its log of deliveries. What it has not been sent is not sent any more.`,
		Example: `  coder webhooks remove ci`,
		Args:    flags.Argument("webhook's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, hook, err := findWebhook(g, cmd, args[0])
			if err != nil {
				return err
			}
			if err := client.DeleteWebhook(cmd.Context(), hook.ID); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Removed the webhook %s.\n", hook.Name)
			return nil
		},
	}
}

func webhookDeliveriesCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.WebhookDelivery]{Columns: []output.Column[sdk.WebhookDelivery]{
		output.Col("id", func(d sdk.WebhookDelivery) string { return strconv.FormatInt(d.ID, 10) }),
		output.Col("created at", func(d sdk.WebhookDelivery) string { return output.Ago(d.CreatedAt) }),
		output.Col("type", func(d sdk.WebhookDelivery) string { return d.Type }),
		output.Col("status", func(d sdk.WebhookDelivery) string { return d.Status }),
		output.Col("attempts", func(d sdk.WebhookDelivery) string { return strconv.Itoa(int(d.Attempts)) }),
		output.Col("response", func(d sdk.WebhookDelivery) string {
			if d.ResponseStatus == 0 {
				return ""
			}
			return strconv.Itoa(int(d.ResponseStatus))
		}),
		output.Col("error", func(d sdk.WebhookDelivery) string { return d.Error }),
		output.Col("excerpt", func(d sdk.WebhookDelivery) string { return d.Excerpt }),
		output.Col("next at", func(d sdk.WebhookDelivery) string {
			if d.NextAt == nil {
				return ""
			}
			return d.NextAt.Local().Format("2006-01-02 15:04")
		}),
		output.Col("replay", func(d sdk.WebhookDelivery) string { return strconv.FormatBool(d.Replay) }),
		output.Col("event id", func(d sdk.WebhookDelivery) string { return d.EventID.String() }),
	}, Initial: []string{"id", "created at", "type", "status", "attempts", "response", "error"}}
	var limit int
	var before int64
	cmd := &cobra.Command{
		Use: "deliveries NAME", Short: "List what was sent to a webhook, newest first",
		Long: `List what was sent to a webhook, newest first, with the status and the beginning of the latest answer. Deliveries are kept for 7 days.`,
		Example: `  coder webhooks deliveries ci
  coder webhooks deliveries ci --column id,type,status,excerpt`,
		Args: flags.Argument("webhook's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, hook, err := findWebhook(g, cmd, args[0])
			if err != nil {
				return err
			}
			list, err := listDeliveries(cmd.Context(), client, hook.ID, limit, before)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, list)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 25, "number of deliveries")
	cmd.Flags().Int64Var(&before, "before", 0,
		"list what was sent before the delivery with this id (default the newest)")
	out.Flags(cmd)
	return cmd
}

// deliveriesPage is how many deliveries one answer has at most.
const deliveriesPage = 100

// listDeliveries lists the deliveries to a webhook before one, newest first, at most so many.
func listDeliveries(
	ctx context.Context, client *sdk.Client, hook uuid.UUID, most int, before int64,
) ([]sdk.WebhookDelivery, error) {
	if most < 0 {
		return nil, fault.New(fault.Invalid, "--limit must not be negative")
	}
	all := []sdk.WebhookDelivery{}
	for len(all) < most {
		limit := min(most-len(all), deliveriesPage)
		page, err := client.WebhookDeliveries(ctx, hook, limit, before)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < limit {
			break
		}
		before = page[limit-1].ID
	}
	return all, nil
}

func webhookReplayCmd(g *global.Flags) *cobra.Command {
	var since, until string
	cmd := &cobra.Command{
		Use: "replay NAME [DELIVERY]", Short: "Send events to a webhook again",
		Long: `Send events to a webhook again: those of one delivery, or all of a time that the webhook wants. Their ids stay the same, so that a receiver can tell
what it has already processed. Events are kept for 7 days.`,
		Example: `  coder webhooks replay ci 1042
  coder webhooks replay ci --since 2h
  coder webhooks replay ci --since 2030-01-01T08:00:00Z --until 2030-01-01T09:00:00Z`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var req sdk.ReplayWebhookRequest
			var err error
			if len(args) == 2 {
				if req.Delivery, err = strconv.ParseInt(args[1], 10, 64); err != nil || req.Delivery < 1 {
					return exit.Try(fault.New(fault.Invalid, "%q is not the id of a delivery", args[1]),
						"coder webhooks deliveries NAME")
				}
			}
			if (req.Delivery > 0) == (since != "") {
				return exit.Try(fault.New(fault.Invalid, "say what to send again: a delivery, or the time with --since"), "coder webhooks replay NAME --since 2h")
			}
			if req.Since, err = pastTime("--since", since); err != nil {
				return err
			}
			if req.Until, err = pastTime("--until", until); err != nil {
				return err
			}
			client, hook, err := findWebhook(g, cmd, args[0])
			if err != nil {
				return err
			}
			added, err := client.ReplayWebhook(cmd.Context(), hook.ID, req)
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "%d events are sent to the webhook %s again.\n", added.Count, hook.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "beginning of the time: an RFC 3339 time, or how long ago, such as 2h")
	cmd.Flags().StringVar(&until, "until", "", "end of the time: an RFC 3339 time, or how long ago (default now)")
	return cmd
}

// pastTime parses a time, or how long ago it was. Empty: nil.
func pastTime(flag, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &at, nil
	}
	ago, err := flags.ParseDuration(text)
	if err != nil || ago < 0 {
		return nil, exit.Try(fault.New(fault.Invalid, "%s %q is neither a time nor how long ago it was", flag, text),
			"Give a time such as 2h, or 2030-01-01T08:00:00Z")
	}
	return new(time.Now().Add(-ago)), nil
}

func webhookSecretCmd(g *global.Flags) *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use: "replace-secret NAME", Short: "Replace a webhook's signing secret, and print the new one",
		Long: `Replace a webhook's signing secret, and print the new one on standard output. It cannot be shown again. For the time that --overlap says, messages
have a signature with each of the two secrets: give the receiver the new one meanwhile. With --overlap 0 the old one ends at once.`,
		Example: `  coder webhooks replace-secret ci
  coder webhooks replace-secret ci --overlap 0`,
		Args: flags.Argument("webhook's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, hook, err := findWebhook(g, cmd, args[0])
			if err != nil {
				return err
			}
			made, err := client.ReplaceWebhookSecret(cmd.Context(), hook.ID, sdk.ReplaceWebhookSecretRequest{
				OverlapSeconds: new(int64(overlap / time.Second)),
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The webhook %s has a new signing secret, which is not shown again:\n",
				made.Webhook.Name)
			_, err = fmt.Fprintln(g.Streams().Out, made.Secret)
			return err
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour,
		"how long messages are also signed with the old secret, at most a week")
	return cmd
}

func webhookTestCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "test NAME", Short: "Send a test event to a webhook",
		Long:    `Send an event of the type webhook.test to a webhook. The log of deliveries shows how it answered.`,
		Example: `  coder webhooks test ci`,
		Args:    flags.Argument("webhook's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, hook, err := findWebhook(g, cmd, args[0])
			if err != nil {
				return err
			}
			if err := client.TestWebhook(cmd.Context(), hook.ID); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "A test is on its way to the webhook %s. See its answer with: coder webhooks deliveries %s\n", hook.Name, shell.Word(hook.Name))
			return nil
		},
	}
}

func webhookSwitchCmd(g *global.Flags, use, short string, enabled bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME", Short: short,
		Long:    short + ". What happens while a webhook is disabled is not sent to it: use coder webhooks replay.",
		Example: "  coder webhooks " + use + " ci",
		Args:    flags.Argument("webhook's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, hook, err := findWebhook(g, cmd, args[0])
			if err != nil {
				return err
			}
			if _, err := client.UpdateWebhook(cmd.Context(), hook.ID, sdk.UpdateWebhookRequest{
				Enabled: &enabled,
			}); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The webhook %s is %sd.\n", hook.Name, use)
			return nil
		},
	}
}

// findWebhook returns a webhook by its name.
func findWebhook(g *global.Flags, cmd *cobra.Command, name string) (*sdk.Client, sdk.Webhook, error) {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return nil, sdk.Webhook{}, err
	}
	list, err := client.Webhooks(cmd.Context())
	if err != nil {
		return nil, sdk.Webhook{}, err
	}
	i := slices.IndexFunc(list, func(w sdk.Webhook) bool { return strings.EqualFold(w.Name, name) })
	if i < 0 {
		return nil, sdk.Webhook{}, exit.Try(fault.New(fault.NotFound, "there is no webhook with the name %q", name),
			"coder webhooks list")
	}
	return client, list[i], nil
}
