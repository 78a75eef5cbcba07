// The values that the user's workspaces get as variables and files.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Lock, Pencil, Plus, X } from "lucide-react";
import { type ComponentProps, useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { UserSecret } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { Confirm, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Checkbox, Field, inputClass, TextField, useFields } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";

export function UserSecrets() {
  const secrets = useQuery(queries.secrets());
  const client = useQueryClient();
  const [adding, add] = useState(false);
  const [editing, edit] = useState<UserSecret | null>(null);
  const [removing, remove] = useState<UserSecret | null>(null);
  const reread = () => client.invalidateQueries({ queryKey: queries.secrets().queryKey });
  return (
    <Card
      flush
      title="Secrets"
      actions={
        <Button small onClick={() => add(true)}>
          <Plus /> New secret
        </Button>
      }
    >
      <Pending query={secrets} what="secrets" />
      {secrets.data?.length === 0 && (
        <Empty icon={<Lock />} title="No secrets" action={<DocsLink to="secrets">Secrets in workspaces</DocsLink>}>
          All your workspaces get a secret as an environment variable, a file or both.
        </Empty>
      )}
      {secrets.data && secrets.data.length > 0 && (
        <Table
          label="Secrets"
          rows={secrets.data}
          id={(s) => s.id}
          columns={[
            {
              name: "Name",
              cell: (s) => (
                <>
                  <span className="font-medium">{s.name}</span>
                  {s.description && <span className="block text-[13px] text-muted">{s.description}</span>}
                </>
              ),
            },
            { name: "Variable", cell: (s) => s.env_name, className: mono },
            { name: "File", cell: (s) => s.file_path, className: mono },
            {
              name: "Status",
              cell: (s) =>
                s.unreadable ? <Badge tone="bad">Set again</Badge> : s.enabled ? "Enabled" : <Badge>Disabled</Badge>,
            },
            { name: "Updated", cell: (s) => <Ago at={s.updated_at} /> },
            {
              name: "Actions",
              action: true,
              cell: (s) => (
                <span className="inline-flex gap-1">
                  <IconButton label={`Edit secret ${s.name}`} onClick={() => edit(s)}>
                    <Pencil />
                  </IconButton>
                  <IconButton label={`Delete secret ${s.name}`} onClick={() => remove(s)}>
                    <X />
                  </IconButton>
                </span>
              ),
            },
          ]}
        />
      )}
      {adding && (
        <NewSecret
          onClose={() => {
            add(false);
            void reread();
          }}
        />
      )}
      {editing && (
        <EditSecret
          secret={editing}
          onClose={() => {
            edit(null);
            void reread();
          }}
        />
      )}
      {removing && (
        <Confirm
          title={`Delete secret ${removing.name}?`}
          action="Delete"
          danger
          onConfirm={async () => {
            await send("DELETE users/{user}/secrets/{name}", { user: "me", name: removing.name });
            await reread();
          }}
          onClose={() => remove(null)}
        >
          Running workspaces remove its file. Open sessions keep its variable.
        </Confirm>
      )}
    </Card>
  );
}

const hints = { env_name: "Such as API_KEY", file_path: "Such as ~/.api-key" };

function NewSecret({ onClose }: { onClose: () => void }) {
  const { values, field } = useFields({ name: "", value: "", description: "", env_name: "", file_path: "" });
  const create = useMutation({
    mutationFn: () => send("POST users/{user}/secrets", { user: "me", body: values }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title="New secret" request={create} submit="Create secret" onClose={onClose}>
      <TextField label="Name" required autoFocus {...field("name")} />
      <Value required hint="It cannot be read back." {...field("value")} />
      <TextField label="Environment variable" hint={hints.env_name} {...field("env_name")} />
      <TextField label="File" hint={hints.file_path} {...field("file_path")} />
      <TextField label="Description" {...field("description")} />
    </FormDialog>
  );
}

// EditSecret changes everything but the name. The value is not known here: an empty field keeps it.
function EditSecret({ secret, onClose }: { secret: UserSecret; onClose: () => void }) {
  const { values, field } = useFields({
    value: "",
    description: secret.description,
    env_name: secret.env_name,
    file_path: secret.file_path,
  });
  const [enabled, enable] = useState(secret.enabled);
  const save = useMutation({
    mutationFn: () =>
      send("PATCH users/{user}/secrets/{name}", {
        user: "me",
        name: secret.name,
        body: { ...values, value: values.value || null, enabled },
      }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title={`Edit secret ${secret.name}`} request={save} submit="Save secret" onClose={onClose}>
      <Value
        autoFocus
        required={secret.unreadable}
        hint={
          secret.unreadable ? "The server can no longer read it: enter it again." : "Empty: the value stays as it is."
        }
        {...field("value")}
      />
      <TextField label="Environment variable" hint={hints.env_name} {...field("env_name")} />
      <TextField label="File" hint={hints.file_path} {...field("file_path")} />
      <TextField label="Description" {...field("description")} />
      <Checkbox label="Enabled" hint="Workspaces do not get a disabled secret." checked={enabled} onChange={enable} />
    </FormDialog>
  );
}

interface ValueProps extends Omit<ComponentProps<"textarea">, "onChange"> {
  name: string;
  value: string;
  hint: string;
  onChange: (text: string) => void;
}

// Value has several lines, because private keys do. Like a password, it is masked.
function Value({ name, hint, onChange, ...rest }: ValueProps) {
  return (
    <Field name={name} label="Value" hint={hint}>
      {(props) => (
        <textarea
          {...props}
          rows={3}
          autoComplete="off"
          spellCheck={false}
          className={cx(inputClass, "py-1.5 font-mono text-[13px] [-webkit-text-security:disc]")}
          onChange={(e) => onChange(e.target.value)}
          {...rest}
        />
      )}
    </Field>
  );
}
