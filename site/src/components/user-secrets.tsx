// The values that the user's workspaces get as variables and files.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Lock, Plus, X } from "lucide-react";
import { useState } from "react";
import { segment, send } from "~/api/client";
import { queries } from "~/api/queries";
import type { CreateUserSecretRequest, UserSecret } from "~/api/types";
import { Confirm, FormDialog } from "./dialog";
import { TextField, useFields } from "./form";
import { mono, Table } from "./table";
import { Ago, Badge, Button, Card, Empty, IconButton, Pending } from "./ui";

export function UserSecrets() {
  const secrets = useQuery(queries.secrets());
  const client = useQueryClient();
  const [adding, add] = useState(false);
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
        <Empty icon={<Lock />} title="No secrets">
          All your workspaces get a secret as an environment variable, a file or both.
        </Empty>
      )}
      {secrets.data && secrets.data.length > 0 && (
        <Table
          label="Secrets"
          rows={secrets.data}
          id={(s) => s.id}
          columns={[
            { name: "Name", cell: (s) => s.name, className: "font-medium" },
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
                <IconButton label={`Delete secret ${s.name}`} onClick={() => remove(s)}>
                  <X />
                </IconButton>
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
      {removing && (
        <Confirm
          title={`Delete secret ${removing.name}?`}
          action="Delete"
          danger
          onConfirm={async () => {
            await send("DELETE", `users/me/secrets/${segment(removing.name)}`);
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

function NewSecret({ onClose }: { onClose: () => void }) {
  const { values, field } = useFields({ name: "", value: "", description: "", env_name: "", file_path: "" });
  const create = useMutation({
    mutationFn: () => send<UserSecret>("POST", "users/me/secrets", values satisfies CreateUserSecretRequest),
    onSuccess: onClose,
  });
  return (
    <FormDialog title="New secret" request={create} submit="Create secret" onClose={onClose}>
      <TextField label="Name" required autoFocus {...field("name")} />
      <TextField
        label="Value"
        type="password"
        required
        autoComplete="off"
        hint="It cannot be read back."
        {...field("value")}
      />
      <TextField label="Environment variable" hint="Such as API_KEY" {...field("env_name")} />
      <TextField label="File" hint="Such as ~/.api-key" {...field("file_path")} />
      <TextField label="Description" {...field("description")} />
    </FormDialog>
  );
}
