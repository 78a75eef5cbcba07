import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { Organization } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { ErrorNote } from "~/components/ui/error-note";
import { Facts } from "~/components/ui/facts";
import { Form, TextField, useFields } from "~/components/ui/form";
import { Pending } from "~/components/ui/pending";
import { fullTime } from "~/lib/format";
import { paths } from "~/lib/path";

type Fields = ReturnType<
  typeof useFields<{ name: string; display_name: string; description: string; icon: string }>
>["field"];

// OrganizationFields are the inputs that describe an organization.
export function OrganizationFields({ field, kept }: { field: Fields; kept?: boolean }) {
  return (
    <>
      <TextField
        label="Name"
        required
        autoFocus={!kept}
        autoComplete="off"
        spellCheck={false}
        hint="Lower-case letters, digits and hyphens. Used in addresses and on the command line."
        {...field("name")}
      />
      <TextField
        label="Display name"
        required={kept ?? false}
        autoComplete="off"
        hint={kept ? undefined : "The same as the name if left empty."}
        {...field("display_name")}
      />
      <TextField label="Description" autoComplete="off" {...field("description")} />
      <TextField
        label="Icon"
        autoComplete="off"
        placeholder="/emojis/1f3e2.png"
        hint="The path of a picture on this server, such as /icon/docker.svg or /emojis/1f680.png."
        {...field("icon")}
      />
    </>
  );
}

interface SettingsProps {
  organization: Organization;
  update: boolean; // the user may change it
  remove: boolean; // the user may delete it
}

export function OrganizationSettings({ organization: o, update, remove }: SettingsProps) {
  return (
    <>
      {update ? <Settings organization={o} /> : <About organization={o} />}
      {update && <SharingOfWorkspaces organization={o} />}
      {remove && <Deletion organization={o} />}
    </>
  );
}

function About({ organization: o }: { organization: Organization }) {
  return (
    <Card title="About">
      <Facts
        of={[
          ["Name", o.name],
          ["Description", o.description || "None"],
          ["Created", fullTime(o.created_at)],
        ]}
      />
    </Card>
  );
}

function Settings({ organization: o }: { organization: Organization }) {
  const [, navigate] = useLocation();
  const { values, field } = useFields({
    name: o.name,
    display_name: o.display_name,
    description: o.description,
    icon: o.icon,
  });
  const save = useMutation({
    mutationFn: () => send("PATCH organizations/{organization}", { organization: o.id, body: values }),
    onSuccess: () => values.name !== o.name && navigate(paths.organization(values.name), { replace: true }),
  });
  return (
    <Card title="Settings">
      <Form request={save} submit="Save" done="Saved" className="max-w-2xl">
        <OrganizationFields field={field} kept />
      </Form>
    </Card>
  );
}

// SharingOfWorkspaces says whether members may share their workspaces, and changes it.
export function SharingOfWorkspaces({ organization: o }: { organization: Organization }) {
  const setting = useQuery(queries.organizationSharing(o.id));
  const client = useQueryClient();
  const [asking, ask] = useState(false);
  const set = async (disabled: boolean) => {
    const next = await send("PATCH organizations/{organization}/settings/workspace-sharing", {
      organization: o.id,
      body: { sharing_disabled: disabled },
    });
    client.setQueryData(queries.organizationSharing(o.id).queryKey, next);
    await client.invalidateQueries({ queryKey: ["workspaces"] });
  };
  const enable = useMutation({ mutationFn: () => set(false) });
  if (!setting.data) return <Pending query={setting} what="setting" />;
  const off = setting.data.sharing_disabled;
  return (
    <Card title="Sharing of workspaces">
      <div className="flex flex-wrap items-center justify-between gap-3">
        <p className="max-w-xl text-muted">
          {off
            ? "Workspaces and their ports cannot be shared in this organization."
            : "Owners can share their workspaces and ports with users and groups of this organization."}{" "}
          <DocsLink to="sharing#off-in-an-organization">Sharing</DocsLink>
        </p>
        {off ? (
          <Button busy={enable.isPending} onClick={() => enable.mutate()}>
            Enable sharing
          </Button>
        ) : (
          <Button look="danger" onClick={() => ask(true)}>
            Disable sharing…
          </Button>
        )}
      </div>
      <ErrorNote error={enable.error} />
      {asking && (
        <Confirm
          title={`Disable sharing in ${o.display_name}?`}
          action="Disable"
          danger
          onConfirm={() => set(true)}
          onClose={() => ask(false)}
        >
          All workspaces and ports that are shared now are withdrawn, and the sessions of the others end. Enabling
          sharing later does not bring them back.
        </Confirm>
      )}
    </Card>
  );
}

function Deletion({ organization: o }: { organization: Organization }) {
  const [, navigate] = useLocation();
  const [asking, ask] = useState(false);
  return (
    <Card title="Delete">
      {o.is_default ? (
        <p className="text-muted">The default organization cannot be deleted, because new users join it.</p>
      ) : (
        <div className="flex flex-wrap items-center justify-between gap-3">
          <p className="max-w-xl text-muted">
            Its groups, custom roles and memberships are deleted with it. Delete its templates, workspaces and
            provisioner keys first, and stop its provisioners.
          </p>
          <Button look="danger" onClick={() => ask(true)}>
            Delete organization…
          </Button>
        </div>
      )}
      {asking && (
        <Confirm
          title={`Delete ${o.display_name}?`}
          action="Delete"
          danger
          typed={o.name}
          onConfirm={async () => {
            await send("DELETE organizations/{organization}", { organization: o.id });
            navigate(paths.organizations);
          }}
          onClose={() => ask(false)}
        >
          This cannot be undone.
        </Confirm>
      )}
    </Card>
  );
}
