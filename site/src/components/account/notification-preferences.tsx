// What the user wants to be notified of.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { NotificationTemplate } from "~/api/types";
import { Card } from "~/components/ui/card";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox } from "~/components/ui/form";
import { Pending } from "~/components/ui/pending";

// groupsOf returns the templates by their groups, in order.
export function groupsOf(templates: NotificationTemplate[]): [string, NotificationTemplate[]][] {
  const groups = new Map<string, NotificationTemplate[]>();
  for (const t of templates) groups.set(t.group, [...(groups.get(t.group) ?? []), t]);
  return [...groups];
}

export function NotificationPreferences() {
  const templates = useQuery(queries.notificationTemplates());
  const preferences = useQuery(queries.notificationPreferences());
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: ({ id, disabled }: { id: string; disabled: boolean }) =>
      send("PUT users/{user}/notifications/preferences", {
        user: "me",
        body: { template_disabled_map: { [id]: disabled } },
      }),
    onSuccess: (all) => client.setQueryData(queries.notificationPreferences().queryKey, all),
  });
  const chosen = new Map(preferences.data?.map((p) => [p.id, !p.disabled]));
  return (
    <div id="notifications">
      <Card title="Notifications">
        <Pending query={templates} what="notifications" />
        <ErrorNote error={preferences.error ?? change.error} />
        {templates.data && preferences.data && (
          <div className="grid gap-5 md:grid-cols-2">
            {groupsOf(templates.data.filter((t) => !t.required)).map(([group, all]) => (
              <fieldset key={group} className="flex min-w-0 flex-col gap-1.5">
                <legend className="mb-1 font-medium">{group}</legend>
                {all.map((t) => (
                  <Checkbox
                    key={t.id}
                    label={t.name}
                    checked={chosen.get(t.id) ?? t.enabled_by_default}
                    disabled={change.isPending && change.variables.id === t.id}
                    onChange={(on) => change.mutate({ id: t.id, disabled: !on })}
                  />
                ))}
              </fieldset>
            ))}
          </div>
        )}
        <p className="mt-4 text-muted">
          You only get events that concern you. Those of your own account are always sent.
        </p>
      </Card>
    </div>
  );
}
