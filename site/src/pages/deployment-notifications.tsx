// How the deployment notifies its users.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Send } from "lucide-react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { NotificationTemplate } from "~/api/types";
import { groupsOf } from "~/components/account/notification-preferences";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { ErrorNote } from "~/components/ui/error-note";
import { Select } from "~/components/ui/form";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { isOwner, useMe } from "~/components/ui/user";
import { useTitle } from "~/lib/hooks";

const methodNames: Record<string, string> = { smtp: "Mail", webhook: "Webhook" };

export default function DeploymentNotifications() {
  useTitle("Notification settings");
  const me = useMe();
  const client = useQueryClient();
  const settings = useQuery(queries.notificationSettings());
  const methods = useQuery(queries.notificationMethods());
  const templates = useQuery(queries.notificationTemplates());
  const pause = useMutation({
    mutationFn: (paused: boolean) => send("PUT notifications/settings", { body: { notifier_paused: paused } }),
    onSuccess: (next) => client.setQueryData(queries.notificationSettings().queryKey, next),
  });
  const test = useMutation({ mutationFn: () => send("POST notifications/test") });
  const choose = useMutation({
    mutationFn: ({ id, method }: { id: string; method: string }) =>
      send("PUT notifications/templates/{template}/method", { template: id, body: { method } }),
    onSuccess: () => client.invalidateQueries({ queryKey: queries.notificationTemplates().queryKey }),
  });
  const paused = settings.data?.notifier_paused ?? false;
  const available = methods.data?.available ?? [];
  if (!isOwner(me))
    return (
      <Page narrow title="Notifications">
        <Note tone="warn" title="Only owners can change how users are notified." />
      </Page>
    );
  return (
    <Page
      narrow
      title="Notifications"
      subtitle="How this deployment notifies its users"
      actions={
        <>
          <DocsLink to="notifications">Deliveries</DocsLink>
          <Button busy={pause.isPending} disabled={!settings.data} onClick={() => pause.mutate(!paused)}>
            {paused ? "Resume deliveries" : "Pause deliveries"}
          </Button>
          <Button look="primary" busy={test.isPending} onClick={() => test.mutate()}>
            <Send /> Send me a test
          </Button>
        </>
      }
    >
      <ErrorNote error={settings.error ?? methods.error ?? pause.error ?? test.error ?? choose.error} />
      {paused && (
        <Note tone="warn" title="Deliveries are paused.">
          What happens meanwhile is delivered after you resume.
        </Note>
      )}
      {test.isSuccess && !paused && <Note tone="ok" title="A test is on its way to you." />}
      {methods.data && available.length === 0 && (
        <Note tone="warn" title="Email and webhooks are not set up: users see notifications only here.">
          To send mail, start the server with --email-smarthost and --email-from; for a webhook, with
          --notifications-webhook-endpoint.
        </Note>
      )}
      <Card flush title="Events">
        <Pending query={templates} what="events" />
        {templates.data && (
          <Table<NotificationTemplate>
            label="Events"
            rows={groupsOf(templates.data).flatMap(([, all]) => all)}
            id={(t) => t.id}
            columns={[
              { name: "Event", className: "font-medium", cell: (t) => t.name },
              { name: "Group", cell: (t) => t.group },
              {
                name: "Sent by",
                cell: (t) =>
                  available.length === 0 ? (
                    <span className="text-muted">Not configured</span>
                  ) : (
                    <Select
                      aria-label={`Method of ${t.name}`}
                      value={t.method}
                      disabled={choose.isPending && choose.variables.id === t.id}
                      onChange={(e) => choose.mutate({ id: t.id, method: e.target.value })}
                    >
                      <option value="">
                        {methods.data?.default ? `Default (${methodNames[methods.data.default]})` : "Default (none)"}
                      </option>
                      {available.map((m) => (
                        <option key={m} value={m}>
                          {methodNames[m] ?? m}
                        </option>
                      ))}
                    </Select>
                  ),
              },
            ]}
          />
        )}
      </Card>
    </Page>
  );
}
