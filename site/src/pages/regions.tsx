// The regions of the deployment: the servers' own, and those of region proxies, which owners create and delete, and
// whose tokens they replace.
import { useMutation, useQuery } from "@tanstack/react-query";
import { KeyRound, Plus, X } from "lucide-react";
import { useState } from "react";
import { post, send } from "~/api/client";
import { measured, queries } from "~/api/queries";
import type { WorkspaceProxy, WorkspaceProxyResponse } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyLine } from "~/components/ui/copy";
import { Confirm, DoneDialog, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { TextField } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";
import type { Tone } from "~/components/ui/tone";
import { isOwner, useMe } from "~/components/ui/user";
import { useTitle } from "~/lib/hooks";
import { sh } from "~/lib/shell";

const lookEvery = 5000; // ms: no event announces that a proxy connects

export default function Regions() {
  useTitle("Regions");
  const me = useMe();
  if (!isOwner(me))
    return (
      <Page title="Regions">
        <Note tone="warn" title="Only owners of the deployment manage its regions." />
      </Page>
    );
  return (
    <Page
      title="Regions"
      subtitle="Relays near workspaces and users, which also open apps and terminals"
      actions={<DocsLink to="regions">Running region proxies</DocsLink>}
    >
      <Proxies />
    </Page>
  );
}

const tones: Record<string, Tone> = { ok: "ok", unreachable: "bad", unregistered: "plain" };

function Proxies() {
  const list = useQuery(measured(queries.workspaceProxies(), lookEvery));
  const [adding, add] = useState(false);
  const [renewing, renew] = useState<WorkspaceProxy | null>(null);
  const [removing, remove] = useState<WorkspaceProxy | null>(null);
  const regions = list.data?.regions ?? [];
  const own = regions[0];
  return (
    <Card
      flush
      title="All regions"
      actions={
        <Button small onClick={() => add(true)}>
          <Plus /> New region proxy
        </Button>
      }
    >
      <Pending query={list} what="regions" />
      {list.data && (
        <Table
          label="Regions"
          rows={regions}
          id={(p) => p.id}
          columns={[
            {
              name: "Name",
              cell: (p) => (
                <>
                  <span className="font-medium">{p.name}</span>
                  {p.display_name !== p.name && <span className="block text-[13px] text-muted">{p.display_name}</span>}
                </>
              ),
            },
            {
              name: "Status",
              cell: ({ status }) => <Badge tone={tones[status.status] ?? "plain"}>{status.status}</Badge>,
            },
            { name: "URL", cell: (p) => <span className="break-all">{p.url || "–"}</span> },
            { name: "Version", cell: (p) => p.version || "–", className: mono },
            {
              name: "Actions",
              action: true,
              cell: (p) =>
                p !== own && (
                  <>
                    <IconButton label={`Replace the token of ${p.name}`} onClick={() => renew(p)}>
                      <KeyRound />
                    </IconButton>
                    <IconButton label={`Delete ${p.name}`} onClick={() => remove(p)}>
                      <X />
                    </IconButton>
                  </>
                ),
            },
          ]}
        />
      )}
      {adding && <NewProxy onClose={() => add(false)} />}
      {renewing && <NewToken of={renewing} onClose={() => renew(null)} />}
      {removing && (
        <Confirm
          title={`Delete region proxy ${removing.name}?`}
          action="Delete"
          danger
          onConfirm={() => send("DELETE workspaceproxies/{workspaceproxy}", { workspaceproxy: removing.id })}
          onClose={() => remove(null)}
        >
          The proxy is disconnected and stops. Terminals that are open there continue at the servers; apps must be
          opened again.
        </Confirm>
      )}
    </Card>
  );
}

function NewProxy({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [display, setDisplay] = useState("");
  const create = useMutation({
    mutationFn: () => post("workspaceproxies", { body: { name, display_name: display, icon: "" } }),
  });
  if (create.data) return <Token of={create.data} onClose={onClose} />;
  return (
    <FormDialog title="New region proxy" request={create} submit="Create region proxy" onClose={onClose}>
      <TextField label="Name" name="name" required autoFocus value={name} onChange={setName} />
      <TextField
        label="Display name"
        name="display_name"
        value={display}
        onChange={setDisplay}
        hint="What users see, such as a city. The name by default."
      />
    </FormDialog>
  );
}

function NewToken({ of: proxy, onClose }: { of: WorkspaceProxy; onClose: () => void }) {
  const replace = useMutation({
    mutationFn: () =>
      send("PATCH workspaceproxies/{workspaceproxy}", {
        workspaceproxy: proxy.id,
        body: { name: "", display_name: "", icon: "", regenerate_token: true },
      }),
  });
  if (replace.data) return <Token of={replace.data} onClose={onClose} />;
  return (
    <FormDialog
      title={`Replace the token of ${proxy.name}?`}
      request={replace}
      submit="Replace token"
      onClose={onClose}
    >
      <p className="text-muted">The proxy with the old token is disconnected and stops. Start it with the new one.</p>
    </FormDialog>
  );
}

// Token shows a token, which cannot be read again.
function Token({ of: made, onClose }: { of: WorkspaceProxyResponse; onClose: () => void }) {
  return (
    <DoneDialog title={`Token of ${made.proxy.name}`} onClose={onClose}>
      <Note tone="warn" title="Copy this token now. It is shown only once.">
        Store it where the proxy can read it.
      </Note>
      <CopyLine label="proxy token" text={made.proxy_token} />
      <p className="text-muted">On a machine in the region, with the address at which others reach it:</p>
      <CopyLine
        label="start command"
        text={
          "CODER_PROXY_SESSION_TOKEN=… coder wsproxy server" +
          sh` --primary-access-url ${location.origin} --access-url https://…`
        }
      />
    </DoneDialog>
  );
}
