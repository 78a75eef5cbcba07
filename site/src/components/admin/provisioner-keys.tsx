// The keys with which provisioners on other machines join.
import { useMutation, useQuery } from "@tanstack/react-query";
import { KeyRound, Plus, X } from "lucide-react";
import { useState } from "react";
import { post, send } from "~/api/client";
import { queries, standard } from "~/api/queries";
import type { ProvisionerKey } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyLine } from "~/components/ui/copy";
import { Confirm, DoneDialog, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { TextField } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Note } from "~/components/ui/note";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { Tags } from "~/components/ui/tags";
import { parseTags, TagsInput } from "~/components/ui/tags-input";
import { sh } from "~/lib/shell";

export function ProvisionerKeys({ organization }: { organization?: string | undefined }) {
  const keys = useQuery(queries.provisionerKeys(organization));
  const [adding, add] = useState(false);
  const [removing, remove] = useState<ProvisionerKey | null>(null);
  return (
    <Card
      flush
      title="Provisioner keys"
      actions={
        <Button small onClick={() => add(true)}>
          <Plus /> New key
        </Button>
      }
    >
      <Pending query={keys} what="keys" />
      {keys.data?.length === 0 && (
        <Empty
          icon={<KeyRound />}
          title="No provisioner keys"
          action={<DocsLink to="provisioners">Provisioners on other machines</DocsLink>}
        >
          Provisioners on other machines join with a key. Its tags decide which jobs they take.
        </Empty>
      )}
      {keys.data && keys.data.length > 0 && (
        <Table
          label="Provisioner keys"
          rows={keys.data}
          id={(k) => k.id}
          columns={[
            { name: "Name", cell: (k) => k.name, className: "font-medium" },
            { name: "Tags", cell: (k) => <Tags of={k.tags} /> },
            { name: "Created", cell: (k) => <Ago at={k.created_at} /> },
            {
              name: "Actions",
              action: true,
              cell: (k) => (
                <IconButton label={`Delete key ${k.name}`} onClick={() => remove(k)}>
                  <X />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      {adding && <NewKey organization={organization} onClose={() => add(false)} />}
      {removing && (
        <Confirm
          title={`Delete key ${removing.name}?`}
          action="Delete"
          danger
          onConfirm={() =>
            send("DELETE organizations/{organization}/provisionerkeys/{name}", {
              organization: organization ?? standard,
              name: removing.name,
            })
          }
          onClose={() => remove(null)}
        >
          Provisioners that use this key are disconnected and cannot reconnect.
        </Confirm>
      )}
    </Card>
  );
}

function NewKey({ organization, onClose }: { organization: string | undefined; onClose: () => void }) {
  const [name, setName] = useState("");
  const [tags, setTags] = useState("");
  const create = useMutation({
    mutationFn: () =>
      post("organizations/{organization}/provisionerkeys", {
        organization: organization ?? standard,
        body: { name, tags: parseTags(tags) },
      }),
  });
  if (create.data)
    return (
      <DoneDialog title="New provisioner key" onClose={onClose}>
        <Note tone="warn" title="Copy this key now. It is shown only once.">
          Store it where the provisioner can read it.
        </Note>
        <CopyLine label="provisioner key" text={create.data.key} />
        <p className="text-muted">On the other machine:</p>
        <CopyLine
          label="start command"
          text={sh`CODER_URL=${location.origin} CODER_PROVISIONER_DAEMON_KEY=… coder provisioner start`}
        />
      </DoneDialog>
    );
  return (
    <FormDialog title="New provisioner key" request={create} submit="Create key" onClose={onClose}>
      <TextField label="Name" name="name" required autoFocus value={name} onChange={setName} />
      <TagsInput
        label="Tags"
        value={tags}
        onChange={setTags}
        hint="Provisioners with this key take jobs whose tags are all among these."
      />
    </FormDialog>
  );
}
