// The public keys with which the user signs in over SSH.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fingerprint, Plus, X } from "lucide-react";
import { useState } from "react";
import { ApiError, send } from "~/api/client";
import { queries } from "~/api/queries";
import type { CreateUserSSHKeyRequest, UserSSHKey } from "~/api/types";
import { day, lifetimeName } from "~/lib/format";
import { isPrivateKey, sshCommand } from "~/lib/ssh-key";
import { CopyLine } from "./copy";
import { Confirm, FormDialog } from "./dialog";
import { DocsLink } from "./docs-link";
import { Field, inputClass, Select, TextField, useFields } from "./form";
import { mono, Table } from "./table";
import { Ago, Badge, Button, Card, cx, Empty, IconButton, Pending } from "./ui";

const over = (k: UserSSHKey) => k.expires_at !== null && Date.parse(k.expires_at) <= Date.now();

export function SSHKeys() {
  const keys = useQuery(queries.sshKeys());
  const client = useQueryClient();
  const [adding, add] = useState(false);
  const [removing, remove] = useState<UserSSHKey | null>(null);
  const reread = () => client.invalidateQueries({ queryKey: queries.sshKeys().queryKey });
  return (
    <Card
      flush
      title="SSH keys for sign-in"
      actions={
        <span className="flex flex-wrap items-center gap-4">
          <DocsLink to="sign-in">Sign-in with SSH keys</DocsLink>
          <Button small onClick={() => add(true)}>
            <Plus /> Add SSH key
          </Button>
        </span>
      }
    >
      <Pending query={keys} what="SSH keys" />
      {keys.data?.length === 0 && (
        <Empty icon={<Fingerprint />} title="No SSH keys">
          The SSH gateway signs you in with a key that you add here. Only its public half is stored.
        </Empty>
      )}
      {keys.data && keys.data.length > 0 && (
        <Table
          label="SSH keys for sign-in"
          rows={keys.data}
          id={(k) => k.id}
          columns={[
            { name: "Name", cell: (k) => k.name, className: "font-medium" },
            { name: "Type", cell: (k) => k.type, className: mono },
            { name: "Fingerprint", cell: (k) => k.fingerprint, className: cx(mono, "break-all") },
            { name: "Added", className: "whitespace-nowrap", cell: (k) => <Ago at={k.created_at} /> },
            {
              name: "Expires",
              className: "whitespace-nowrap",
              cell: (k) => {
                if (over(k)) return <Badge>Expired</Badge>;
                return k.expires_at ? <Ago at={k.expires_at} /> : "Never";
              },
            },
            {
              name: "Last used",
              className: "whitespace-nowrap",
              cell: (k) => (k.last_used_at ? <Ago at={k.last_used_at} /> : "Never"),
            },
            {
              name: "Actions",
              action: true,
              cell: (k) => (
                <IconButton label={`Remove SSH key ${k.name}`} onClick={() => remove(k)}>
                  <X />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      <Gateway />
      {adding && (
        <AddKey
          onClose={() => {
            add(false);
            void reread();
          }}
        />
      )}
      {removing && (
        <Confirm
          title={`Remove SSH key ${removing.name}?`}
          action="Remove"
          danger
          onConfirm={async () => {
            await send("DELETE", `users/me/ssh-keys/${removing.id}`);
            await reread();
          }}
          onClose={() => remove(null)}
        >
          You can no longer sign in with it. The key on your machine stays, and you can add it again.
        </Confirm>
      )}
    </Card>
  );
}

// Gateway tells where the keys sign in, if the server has an SSH gateway.
function Gateway() {
  const { data: gateway } = useQuery(queries.sshGateway());
  if (!gateway?.enabled) return null;
  return (
    <div className="space-y-2 border-t border-line p-4 text-[13px] text-muted">
      <p>
        Connect with any SSH client, and the name of a workspace in place of <code>WORKSPACE</code>.{" "}
        <DocsLink to="ssh">SSH without our program</DocsLink>
      </p>
      <CopyLine label="SSH command" text={sshCommand(gateway.address)} />
      <p className="break-all">
        The host key of the gateway is <code>{gateway.fingerprint}</code>.
      </p>
      <HostCA />
    </div>
  );
}

// HostCA shows by which lines OpenSSH knows the gateway and workspaces.
function HostCA() {
  const { data: ca } = useQuery(queries.sshHostCA());
  if (!ca) return null;
  return (
    <>
      <p>With this in known_hosts, OpenSSH knows the gateway, and workspaces behind a jump through it.</p>
      {ca.known_hosts.map((line, i) => (
        <CopyLine key={line} label={i === 0 ? "Line for known_hosts" : "Previous line for known_hosts"} text={line} />
      ))}
    </>
  );
}

// lifetimes returns the choices, in nanoseconds. 0, the first, is the longest that the deployment allows, which may be
// unlimited.
const lifetimes = (longest: number) => [
  0,
  ...[7, 30, 90, 365].map((d) => d * day).filter((l) => longest === 0 || l < longest),
];

function AddKey({ onClose }: { onClose: () => void }) {
  const { values, field } = useFields({ public_key: "", name: "" });
  const [chosen, choose] = useState(0);
  const { data: gateway } = useQuery(queries.sshGateway());
  const longest = gateway?.max_key_lifetime ?? 0;
  const create = useMutation({
    mutationFn: () => {
      if (isPrivateKey(values.public_key)) throw refusal;
      return send<UserSSHKey>("POST", "users/me/ssh-keys", {
        ...values,
        lifetime: chosen,
      } satisfies CreateUserSSHKeyRequest);
    },
    onSuccess: onClose,
  });
  const key = field("public_key");
  return (
    <FormDialog title="Add SSH key" request={create} submit="Add key" onClose={onClose}>
      <Field
        name={key.name}
        label="Public key"
        hint="The line in a file such as ~/.ssh/id_ed25519.pub. Create a key with: ssh-keygen -t ed25519"
      >
        {(props) => (
          <textarea
            {...props}
            required
            autoFocus
            rows={4}
            autoComplete="off"
            spellCheck={false}
            className={cx(inputClass, "py-1.5 font-mono text-[13px] break-all")}
            value={key.value}
            onChange={(e) => key.onChange(e.target.value)}
          />
        )}
      </Field>
      <TextField label="Name" hint="Empty: the comment of the key." {...field("name")} />
      <Field name="lifetime" label="Lifetime">
        {(props) => (
          <Select {...props} value={chosen} onChange={(e) => choose(Number(e.target.value))}>
            {lifetimes(longest).map((l) => (
              <option key={l} value={l}>
                {l || longest ? lifetimeName(l || longest) : "Unlimited"}
              </option>
            ))}
          </Select>
        )}
      </Field>
    </FormDialog>
  );
}

const refusal = new ApiError(
  400,
  "This is a private key. It was not sent.",
  "Keep it secret, and paste the file whose name ends in .pub.",
  [{ field: "public_key", detail: "must be a public key, on one line" }],
);
