// The webhooks that get the deployment's events, and what was sent to them.
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Plus, RotateCcw, Send, Trash2, Webhook as WebhookIcon } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { lists } from "~/api/lists";
import { queries } from "~/api/queries";
import type { CreateWebhookResponse, Webhook, WebhookDelivery } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyButton } from "~/components/ui/copy";
import { Confirm, DoneDialog, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Field, Select, TextField, useFields } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";
import { isOwner, useMe } from "~/components/ui/user";
import { useTitle } from "~/lib/hooks";

export default function Webhooks() {
  useTitle("Webhooks");
  const owner = isOwner(useMe());
  const [adding, add] = useState(false);
  if (!owner)
    return (
      <Page title="Webhooks">
        <Note tone="warn" title="Only owners can see and change webhooks." />
      </Page>
    );
  return (
    <Page
      title="Webhooks"
      subtitle="Tell other services what happens to workspaces, builds, agents, users and templates"
      actions={
        <>
          <DocsLink to="webhooks">Webhooks</DocsLink>
          <Button look="primary" onClick={() => add(true)}>
            <Plus /> Add webhook
          </Button>
        </>
      }
    >
      <List />
      {adding && <AddWebhook onClose={() => add(false)} />}
    </Page>
  );
}

function List() {
  const hooks = useQuery(queries.webhooks());
  const client = useQueryClient();
  const [shown, show] = useState("");
  const [removing, remove] = useState<Webhook | null>(null);
  const [replacing, replace] = useState<Webhook | null>(null);
  const reread = () => client.invalidateQueries({ queryKey: queries.webhooks().queryKey });
  const change = useMutation({
    mutationFn: ({ id, enabled }: { id: string; enabled: boolean }) =>
      send("PATCH webhooks/{webhook}", { webhook: id, body: { enabled } }),
    onSuccess: reread,
  });
  const open = hooks.data?.find((h) => h.id === shown);
  return (
    <>
      <ErrorNote error={change.error} />
      <Card flush title="Webhooks">
        <Pending query={hooks} what="webhooks" />
        {hooks.data?.length === 0 && (
          <Empty icon={<WebhookIcon />} title="No webhooks">
            A webhook gets events as signed HTTP requests, or as messages for Slack or Teams.
          </Empty>
        )}
        {hooks.data && hooks.data.length > 0 && (
          <Table<Webhook>
            label="Webhooks"
            rows={hooks.data}
            id={(h) => h.id}
            columns={[
              { name: "Name", className: "font-medium", cell: (h) => h.name },
              { name: "Destination", className: `${mono} break-all`, cell: (h) => h.origin },
              { name: "Events", className: mono, cell: (h) => h.events.join(" ") },
              { name: "Format", cell: (h) => h.format },
              { name: "Status", cell: (h) => <Status hook={h} /> },
              {
                name: "Actions",
                action: true,
                cell: (h) => (
                  <span className="inline-flex items-center gap-1">
                    <Button
                      small
                      aria-label={`Deliveries to ${h.name}`}
                      onClick={() => show(h.id === shown ? "" : h.id)}
                    >
                      Deliveries
                    </Button>
                    <Button
                      small
                      aria-label={`${h.disabled_at ? "Enable" : "Disable"} ${h.name}`}
                      busy={change.isPending && change.variables.id === h.id}
                      onClick={() => change.mutate({ id: h.id, enabled: h.disabled_at !== null })}
                    >
                      {h.disabled_at ? "Enable" : "Disable"}
                    </Button>
                    <IconButton label={`Replace the secret of ${h.name}`} onClick={() => replace(h)}>
                      <KeyRound />
                    </IconButton>
                    <IconButton label={`Remove webhook ${h.name}`} onClick={() => remove(h)}>
                      <Trash2 />
                    </IconButton>
                  </span>
                ),
              },
            ]}
          />
        )}
      </Card>
      {open && <Deliveries hook={open} />}
      {replacing && <ReplaceSecret hook={replacing} onClose={() => replace(null)} />}
      {removing && (
        <Confirm
          title={`Remove webhook ${removing.name}?`}
          action="Remove"
          danger
          onConfirm={async () => {
            await send("DELETE webhooks/{webhook}", { webhook: removing.id });
            await reread();
          }}
          onClose={() => remove(null)}
        >
          It gets no more events, and its log of deliveries is deleted.
        </Confirm>
      )}
    </>
  );
}

function Status({ hook }: { hook: Webhook }) {
  if (hook.disabled_at) return <Badge title={hook.disabled_reason}>Disabled</Badge>;
  if (hook.failing_since)
    return (
      <span>
        Failing since <Ago at={hook.failing_since} />
      </span>
    );
  return <>Enabled</>;
}

// Deliveries is the log of what was sent to a webhook. It follows attempts while some are pending.
export function Deliveries({ hook }: { hook: Webhook }) {
  const query = lists.deliveries(hook.id);
  const log = useInfiniteQuery({
    ...query,
    refetchInterval: ({ state }) => (state.data?.pages.flat().some((d) => d.status === "pending") ? 3000 : false),
  });
  const rows = log.data?.pages.flat();
  const client = useQueryClient();
  const reread = () => client.invalidateQueries({ queryKey: query.queryKey });
  const test = useMutation({
    mutationFn: () => send("POST webhooks/{webhook}/test", { webhook: hook.id }),
    onSuccess: reread,
  });
  const replay = useMutation({
    mutationFn: (delivery: number) => send("POST webhooks/{webhook}/replay", { webhook: hook.id, body: { delivery } }),
    onSuccess: reread,
  });
  return (
    <Card
      flush
      title={`Deliveries to ${hook.name}`}
      actions={
        <Button small busy={test.isPending} disabled={hook.disabled_at !== null} onClick={() => test.mutate()}>
          <Send /> Send a test
        </Button>
      }
    >
      <ErrorNote error={test.error ?? replay.error} />
      <Pending query={log} what="deliveries" />
      {rows?.length === 0 && <Empty icon={<WebhookIcon />} title="Nothing was sent yet" />}
      {rows && rows.length > 0 && (
        <Table<WebhookDelivery>
          label={`Deliveries to ${hook.name}`}
          rows={rows}
          id={(d) => String(d.id)}
          columns={[
            { name: "Event", className: mono, cell: (d) => d.type },
            { name: "Created", className: "whitespace-nowrap", cell: (d) => <Ago at={d.created_at} /> },
            {
              name: "Status",
              cell: (d) => (
                <>
                  {d.status}
                  {d.replay && " (replay)"}
                </>
              ),
            },
            { name: "Attempts", cell: (d) => d.attempts },
            { name: "Answer", className: "break-all", cell: (d) => answer(d) },
            {
              name: "Actions",
              action: true,
              cell: (d) => (
                <IconButton
                  label={`Send ${d.type} ${d.id} again`}
                  disabled={replay.isPending || hook.disabled_at !== null}
                  onClick={() => replay.mutate(d.id)}
                >
                  <RotateCcw />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      {log.hasNextPage && (
        <div className="border-t border-line p-3 text-center">
          <Button small busy={log.isFetchingNextPage} onClick={() => void log.fetchNextPage()}>
            Show older
          </Button>
        </div>
      )}
    </Card>
  );
}

// answer is what is known of the latest attempt.
export const answer = (d: WebhookDelivery) =>
  [d.response_status || "", d.error && !d.error.endsWith(`status ${d.response_status}`) ? d.error : "", d.excerpt]
    .filter((part) => part !== "")
    .join(" · ");

const kinds = {
  "*": "All events",
  "workspace.*": "Workspaces",
  "build.*": "Builds",
  "build.failed": "Failed builds",
  "agent.*": "Agents",
  "user.*": "Users",
  "template.*": "Templates",
};

// Secret shows a signing secret once.
function Secret({ of, onClose }: { of: CreateWebhookResponse; onClose: () => void }) {
  return (
    <DoneDialog title={`Signing secret of ${of.webhook.name}`} onClose={onClose}>
      <Note tone="warn" title="Keep this secret now. It cannot be shown again.">
        The receiver checks with it that requests come from this deployment. Slack and Teams do not need it.
      </Note>
      <span className="flex items-center gap-2">
        <code className="text-[13px] break-all">{of.secret}</code>
        <CopyButton text={of.secret} label="Copy secret" />
      </span>
    </DoneDialog>
  );
}

const day = 24 * 60 * 60;

function ReplaceSecret({ hook, onClose }: { hook: Webhook; onClose: () => void }) {
  const [overlap, setOverlap] = useState(String(day));
  const replace = useMutation({
    gcTime: 0, // the result has the secret
    mutationFn: () =>
      send("POST webhooks/{webhook}/secret", { webhook: hook.id, body: { overlap_seconds: Number(overlap) } }),
  });
  if (replace.data) return <Secret of={replace.data} onClose={onClose} />;
  return (
    <FormDialog title={`Replace the secret of ${hook.name}?`} request={replace} submit="Replace" onClose={onClose}>
      <Field
        name="overlap"
        label="Messages are also signed with the old secret"
        hint="Give the receiver the new one meanwhile."
      >
        {(props) => (
          <Select {...props} value={overlap} onChange={(e) => setOverlap(e.target.value)}>
            <option value={String(day)}>for a day</option>
            <option value={String(7 * day)}>for a week</option>
            <option value="0">no longer: it has leaked</option>
          </Select>
        )}
      </Field>
    </FormDialog>
  );
}

function AddWebhook({ onClose }: { onClose: () => void }) {
  const { values, field } = useFields({ name: "", url: "" });
  const [format, setFormat] = useState("standard");
  const [events, setEvents] = useState("*");
  const client = useQueryClient();
  const create = useMutation({
    gcTime: 0, // the result has the secret
    mutationFn: () =>
      send("POST webhooks", { body: { name: values.name, url: values.url.trim(), events: [events], format } }),
    onSuccess: () => client.invalidateQueries({ queryKey: queries.webhooks().queryKey }),
  });
  if (create.data) return <Secret of={create.data} onClose={onClose} />;
  return (
    <FormDialog title="Add webhook" request={create} submit="Add webhook" onClose={onClose}>
      <TextField label="Name" required autoFocus hint="Such as ci" {...field("name")} />
      <TextField
        label="URL"
        required
        type="url"
        autoComplete="off"
        hint="It is not shown again, because it is often a secret."
        {...field("url")}
      />
      <Field name="events" label="Events" hint="coder webhooks add chooses single types.">
        {(props) => (
          <Select {...props} value={events} onChange={(e) => setEvents(e.target.value)}>
            {Object.entries(kinds).map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Field name="format" label="Format">
        {(props) => (
          <Select {...props} value={format} onChange={(e) => setFormat(e.target.value)}>
            <option value="standard">Signed JSON</option>
            <option value="slack">Slack message</option>
            <option value="teams">Teams card</option>
          </Select>
        )}
      </Field>
    </FormDialog>
  );
}
