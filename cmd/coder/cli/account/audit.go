package account

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func auditCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Show and export the audit log", Example: "  coder audit list --search action:delete",
		Long: `Show who changed what, when and from where, and who connected to which workspace. Requires the role Owner or Auditor.`,
	}
	cmd.AddCommand(auditListCmd(g), connectionsCmd(g), auditExportCmd(g))
	return cmd
}

var auditColumns = []output.Column[sdk.AuditLog]{
	output.Col("time", func(l sdk.AuditLog) string { return l.Time.UTC().Format(time.DateTime) }),
	output.Col("actor", func(l sdk.AuditLog) string { return l.Actor }),
	output.Col("action", func(l sdk.AuditLog) string { return l.Action }),
	output.Col("kind", func(l sdk.AuditLog) string { return l.ResourceType }),
	output.Col("target", func(l sdk.AuditLog) string { return l.ResourceTarget }),
	output.Col("status", func(l sdk.AuditLog) string { return strconv.Itoa(l.StatusCode) }),
	output.Col("address", func(l sdk.AuditLog) string { return l.IP }),
	output.Col("description", func(l sdk.AuditLog) string { return l.Description }),
	output.Col("user agent", func(l sdk.AuditLog) string { return l.UserAgent }),
	output.Col("request", func(l sdk.AuditLog) string { return l.RequestID.String() }),
	output.Col("id", func(l sdk.AuditLog) string { return l.ID.String() }),
}

func auditListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.AuditLog]{Columns: auditColumns, Initial: []string{"time", "actor", "action", "kind", "target", "status", "address"}}
	var query sdk.LogQuery
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List who did what, newest first",
		Example: `  coder audit list --search "username:ada date_from:2030-01-01"
  coder audit list --search resource_type:template -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			page, err := client.AuditLogs(cmd.Context(), query)
			if err != nil {
				return err
			}
			if err := out.Print(g.Streams().Out, page.AuditLogs); err != nil {
				return err
			}
			shown(g, len(page.AuditLogs), query.Offset, page.Count, page.CountCap)
			return nil
		},
	}
	logFlags(cmd, &query, "resource_type, resource_id, resource_target, action, username, email, date_from, date_to, build_reason, organization, request_id")
	out.Flags(cmd)
	return cmd
}

func logFlags(cmd *cobra.Command, query *sdk.LogQuery, keys string) {
	f := cmd.Flags()
	f.StringVar(&query.Q, "search", "", "filter, such as key:value; the keys are "+keys)
	f.IntVarP(&query.Limit, "limit", "n", 25, "number of rows, at most 1000")
	f.IntVar(&query.Offset, "offset", 0, "number of rows to skip")
}

// shown tells on a terminal that there is more.
func shown(g *global.Flags, n, offset, count, bound int) {
	if offset+n >= count {
		return
	}
	total := strconv.Itoa(count)
	if count >= bound {
		total = "more than " + strconv.Itoa(bound-1)
	}
	fmt.Fprintf(g.Streams().Err, "These are %d rows of %s. Continue with --offset %d, or export them all: coder audit export\n", n, total, offset+n)
}

func auditExportCmd(g *global.Flags) *cobra.Command {
	var search, file string
	var connections bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export the whole log, one JSON object per line",
		Long:  "Export the audit log, or the connection log, as one JSON object per line, newest first. An export that fails exits with an error, so that a part is not mistaken for the whole.",
		Example: `  coder audit export --search "date_from:2030-01-01 date_to:2030-01-31" > january.jsonl
  coder audit export --connections --output-file connections.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			out := g.Streams().Out
			if file != "" {
				f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
				if err != nil {
					return fmt.Errorf("create file: %w", err)
				}
				if err := exportTo(cmd.Context(), f, client, connections, search); err != nil {
					f.Close()
					return err
				}
				return f.Close()
			}
			return exportTo(cmd.Context(), out, client, connections, search)
		},
	}
	f := cmd.Flags()
	f.StringVar(&search, "search", "", "filter as in coder audit list, or coder audit connections")
	f.StringVar(&file, "output-file", "", "file to write (default standard output)")
	f.BoolVar(&connections, "connections", false, "export the connection log instead of the audit log")
	return cmd
}

func exportTo(ctx context.Context, w io.Writer, client *sdk.Client, connections bool, search string) error {
	if connections {
		return client.ExportConnectionLogs(ctx, w, sdk.LogQuery{Q: search})
	}
	return client.ExportAuditLogs(ctx, w, sdk.LogQuery{Q: search})
}

var connectionColumns = []output.Column[sdk.ConnectionLog]{
	output.Col("time", func(l sdk.ConnectionLog) string { return l.ConnectTime.UTC().Format(time.DateTime) }),
	output.Col("user", func(l sdk.ConnectionLog) string { return l.Username }),
	output.Col("workspace", func(l sdk.ConnectionLog) string {
		return l.WorkspaceOwnerUsername + "/" + l.WorkspaceName + "." + l.AgentName
	}),
	output.Col("type", func(l sdk.ConnectionLog) string { return l.Type }),
	output.Col("target", func(l sdk.ConnectionLog) string { return l.SlugOrPort }),
	output.Col("address", func(l sdk.ConnectionLog) string { return l.IP }),
	output.Col("path", func(l sdk.ConnectionLog) string { return l.Path }),
	output.Col("duration", func(l sdk.ConnectionLog) string {
		switch {
		case l.Refused == 1:
			return "refused"
		case l.Refused > 1:
			return fmt.Sprintf("refused %d times", l.Refused)
		case l.DisconnectTime == nil:
			return "open"
		}
		return l.DisconnectTime.Sub(l.ConnectTime).Round(time.Second).String()
	}),
	output.Col("in", func(l sdk.ConnectionLog) string { return strconv.FormatInt(l.BytesIn, 10) }),
	output.Col("out", func(l sdk.ConnectionLog) string { return strconv.FormatInt(l.BytesOut, 10) }),
	output.Col("end", func(l sdk.ConnectionLog) string { return l.DisconnectReason }),
	output.Col("id", func(l sdk.ConnectionLog) string { return l.ID.String() }),
}

func connectionsCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.ConnectionLog]{Columns: connectionColumns, Initial: []string{"time", "user", "workspace", "type", "target", "address", "path", "duration"}}
	var query sdk.LogQuery
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List connections, newest first",
		Example: `  coder audit connections --search "workspace_owner:ada type:ssh status:ongoing"
  coder audit connections --search status:refused --column time,user,workspace,type,address,end`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			page, err := client.ConnectionLogs(cmd.Context(), query)
			if err != nil {
				return err
			}
			if err := out.Print(g.Streams().Out, page.ConnectionLogs); err != nil {
				return err
			}
			shown(g, len(page.ConnectionLogs), query.Offset, page.Count, page.CountCap)
			return nil
		},
	}
	logFlags(cmd, &query, "workspace_id, workspace_owner, workspace_owner_email, type, username, user_email, connected_after, connected_before, connection_id, organization, status (ongoing, completed or refused)")
	out.Flags(cmd)
	return cmd
}
