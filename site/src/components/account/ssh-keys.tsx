// The public keys with which the user signs in over SSH.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fingerprint, Globe, Plus, X } from "lucide-react";
import { useState } from "react";
import { ApiError, send } from "~/api/client";
import { queries } from "~/api/queries";
import type { SSHGateway, SSHRegionGateway, UserSSHKey } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyLine } from "~/components/ui/copy";
import { cx } from "~/components/ui/cx";
import { Confirm, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Checkbox, Field, inputClass, Select, TextField, useFields } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";
import { day, lifetimeName } from "~/lib/format";
import { isPrivateKey, sshCommand } from "~/lib/ssh-key";

const over = (k: UserSSHKey) => k.expires_at !== null && Date.parse(k.expires_at) <= Date.now();

export function SSHKeys() {
  const keys = useQuery(queries.sshKeys());
  const { data: gateway } = useQuery(queries.sshGateway());
  const regions = gateway?.regions ?? [];
  const client = useQueryClient();
  const [adding, add] = useState(false);
  const [allowing, allow] = useState<UserSSHKey | null>(null);
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
            ...(regions.length === 0
              ? []
              : [{ name: "Regions", cell: (k: UserSSHKey) => k.regions.join(", ") || "None" }]),
            { name: "Added", className: "whitespace-nowrap", cell: (k) => <Ago at={k.created_at} /> },
            {
              name: "Expires",
              className: "whitespace-nowrap",
              cell: (k) => {
                if (over(k)) return <Badge>Expired</Badge>;
                return k.expires_at ? <Ago at={k.expires_at} ahead /> : "Never";
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
                <>
                  {regions.length > 0 && (
                    <IconButton label={`Regions of SSH key ${k.name}`} onClick={() => allow(k)}>
                      <Globe />
                    </IconButton>
                  )}
                  <IconButton label={`Remove SSH key ${k.name}`} onClick={() => remove(k)}>
                    <X />
                  </IconButton>
                </>
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
      {allowing && (
        <Allow
          of={allowing}
          regions={regions}
          onClose={() => {
            allow(null);
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
            await send("DELETE users/{user}/ssh-keys/{key}", { user: "me", key: removing.id });
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
  if (!gateway) return null;
  return (
    <>
      {gateway.enabled && <ServerGateway gateway={gateway} />}
      {(gateway.regions ?? []).map((r) => (
        <div key={r.region} className="space-y-2 border-t border-line p-4 text-[13px] text-muted">
          <p>At the region {r.display_name}, with a key that you allow there:</p>
          <CopyLine label={`SSH command at ${r.display_name}`} text={sshCommand(r.address)} />
          <p className="break-all">
            The host key of this gateway is <code>{r.fingerprint}</code>.
          </p>
        </div>
      ))}
    </>
  );
}

function ServerGateway({ gateway }: { gateway: SSHGateway }) {
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

// Regions are boxes for the regions at which a key may sign in.
function Regions({
  regions,
  chosen,
  choose,
}: {
  regions: SSHRegionGateway[];
  chosen: string[];
  choose: (names: string[]) => void;
}) {
  return (
    <fieldset className="space-y-1">
      <legend>Regions</legend>
      {regions.map((r) => (
        <Checkbox
          key={r.region}
          label={r.display_name}
          checked={chosen.includes(r.region)}
          onChange={(on) => choose(on ? [...chosen, r.region] : chosen.filter((name) => name !== r.region))}
        />
      ))}
      <p className="text-[13px] text-muted">
        The server believes a region that says that this key signed in there. A region in the wrong hands could connect
        to your workspaces as you.
      </p>
    </fieldset>
  );
}

// Allow changes at which regions a key may sign in. Those that are not connected now stay as they are.
function Allow({ of, regions, onClose }: { of: UserSSHKey; regions: SSHRegionGateway[]; onClose: () => void }) {
  const [chosen, choose] = useState<string[]>(of.regions);
  const update = useMutation({
    mutationFn: () => send("PATCH users/{user}/ssh-keys/{key}", { user: "me", key: of.id, body: { regions: chosen } }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title={`Regions of SSH key ${of.name}`} request={update} submit="Save" onClose={onClose}>
      <Regions regions={regions} chosen={chosen} choose={choose} />
    </FormDialog>
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
  const [regions, allow] = useState<string[]>(); // unset: what the deployment sets for new keys
  const create = useMutation({
    mutationFn: () => {
      if (isPrivateKey(values.public_key)) throw refusal;
      return send("POST users/{user}/ssh-keys", { user: "me", body: { ...values, lifetime: chosen, regions } });
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
      {gateway && gateway.regions?.length > 0 && (
        <Regions regions={gateway.regions} chosen={regions ?? []} choose={allow} />
      )}
    </FormDialog>
  );
}

const refusal = new ApiError(
  400,
  "This is a private key. It was not sent.",
  "Keep it secret, and paste the file whose name ends in .pub.",
  [{ field: "public_key", detail: "must be a public key, on one line" }],
);
