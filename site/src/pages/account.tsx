import { useMutation, useQuery } from "@tanstack/react-query";
import { KeyRound, Plus, X } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type {
  APIKey,
  CreateTokenRequest,
  CreateTokenResponse,
  UpdateUserPasswordRequest,
  UpdateUserProfileRequest,
} from "~/api/types";
import { CopyLine } from "~/components/copy";
import { Confirm, Dialog } from "~/components/dialog";
import { mono, Table } from "~/components/table";
import {
  Ago,
  Badge,
  Button,
  Card,
  Empty,
  ErrorNote,
  Field,
  fieldError,
  Icon,
  IconButton,
  LinkButton,
  Loading,
  Note,
  Page,
  Select,
  TextField,
} from "~/components/ui";
import { useMe } from "~/components/user";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

export default function Account() {
  useTitle("Account");
  const me = useMe();
  return (
    <Page title="Account" subtitle={me.email}>
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Profile />
        <Password />
      </div>
      <Tokens />
      <Logins />
      <SSHKey />
    </Page>
  );
}

function Profile() {
  const me = useMe();
  const [username, setUsername] = useState(me.username);
  const [name, setName] = useState(me.name);
  const save = useMutation({
    mutationFn: () => send("PUT", "users/me/profile", { username, name } satisfies UpdateUserProfileRequest),
  });
  return (
    <Card title="Profile">
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate();
        }}
      >
        <TextField
          label="Username"
          required
          value={username}
          onChange={setUsername}
          error={fieldError(save.error, "username")}
          hint="Part of your workspaces' addresses."
        />
        <TextField label="Full name" value={name} onChange={setName} error={fieldError(save.error, "name")} />
        <ErrorNote error={save.error} />
        <div className="flex items-center gap-3">
          <Button type="submit" look="primary" busy={save.isPending}>
            Save
          </Button>
          <span role="status" className="text-ok">
            {save.isSuccess && "Saved"}
          </span>
        </div>
      </form>
    </Card>
  );
}

function Password() {
  const [form, setForm] = useState({ old_password: "", password: "" });
  const save = useMutation({
    mutationFn: () => send("PUT", "users/me/password", form satisfies UpdateUserPasswordRequest),
    onSuccess: () => setForm({ old_password: "", password: "" }),
  });
  return (
    <Card title="Password">
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate();
        }}
      >
        <TextField
          label="Old password"
          type="password"
          required
          autoComplete="current-password"
          value={form.old_password}
          onChange={(v) => setForm({ ...form, old_password: v })}
          error={fieldError(save.error, "old_password")}
        />
        <TextField
          label="New password"
          type="password"
          required
          autoComplete="new-password"
          value={form.password}
          onChange={(v) => setForm({ ...form, password: v })}
          error={fieldError(save.error, "password")}
        />
        <ErrorNote error={save.error} />
        <div className="flex items-center gap-3">
          <Button type="submit" look="primary" busy={save.isPending}>
            Change password
          </Button>
          <span role="status" className="text-ok">
            {save.isSuccess && "Changed"}
          </span>
        </div>
      </form>
    </Card>
  );
}

// Logins are the services where the server's operator lets users link accounts. Most servers have none.
function Logins() {
  const all = useQuery(queries.externalAuths());
  if (all.error) return <ErrorNote error={all.error} />;
  if (!all.data?.providers.length) return null;
  return (
    <Card title="Logins at other services">
      <ul className="flex flex-col gap-3">
        {all.data.providers.map((p) => (
          <li key={p.id} className="flex flex-wrap items-center gap-2">
            <Icon src={p.display_icon} name={p.display_name} /> <span className="font-medium">{p.display_name}</span>
            {all.data.links.some((l) => l.provider_id === p.id && l.authenticated) && <Badge tone="ok">Linked</Badge>}
            <LinkButton small href={paths.externalAuth(p.id)}>
              Manage
            </LinkButton>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Tokens() {
  const tokens = useQuery(queries.tokens());
  const [adding, add] = useState(false);
  const [removing, remove] = useState<APIKey | null>(null);
  const drop = useMutation({ mutationFn: (id: string) => send("DELETE", `users/me/keys/${id}`) });
  return (
    <Card
      flush
      title="Tokens"
      actions={
        <Button small onClick={() => add(true)}>
          <Plus /> New token
        </Button>
      }
    >
      <ErrorNote error={tokens.error} />
      {tokens.isPending && !tokens.error && <Loading what="tokens" />}
      {tokens.data?.length === 0 && (
        <Empty icon={<KeyRound />} title="You have no tokens">
          A token lets a script act for you. For a terminal, <code>coder login</code> makes its own session.
        </Empty>
      )}
      {(tokens.data?.length ?? 0) > 0 && (
        <Table
          label="Tokens"
          rows={tokens.data!}
          id={(t) => t.id}
          columns={[
            { name: "Name", cell: (t) => t.token_name, className: "font-medium" },
            { name: "Id", cell: (t) => t.id, className: mono },
            { name: "Last used", cell: (t) => <Ago at={t.last_used} /> },
            { name: "Expires", cell: (t) => <Ago at={t.expires_at} /> },
            {
              name: "Actions",
              action: true,
              cell: (t) => (
                <IconButton label={`Delete the token ${t.token_name}`} onClick={() => remove(t)}>
                  <X />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      {adding && <NewToken onClose={() => add(false)} />}
      {removing && (
        <Confirm
          title={`Delete the token ${removing.token_name}?`}
          action="Delete"
          danger
          onConfirm={() => drop.mutateAsync(removing.id)}
          onClose={() => remove(null)}
        >
          Programs that use it lose access immediately.
        </Confirm>
      )}
    </Card>
  );
}

const day = 24 * 3600 * 1e9; // nanoseconds, as the API counts

function NewToken({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [days, setDays] = useState(30);
  const create = useMutation({
    mutationFn: () =>
      send<CreateTokenResponse>("POST", "users/me/keys/tokens", {
        token_name: name,
        lifetime: days * day,
      } satisfies CreateTokenRequest),
  });
  return (
    <Dialog title="New token" onClose={onClose}>
      {create.data ? (
        <>
          <Note tone="warn" title="This token is shown once">
            Keep it secret: it gives full access to your account.
          </Note>
          <CopyLine label="token" text={create.data.key} />
          <div className="flex justify-end">
            <Button look="primary" onClick={onClose}>
              Done
            </Button>
          </div>
        </>
      ) : (
        <form
          className="flex flex-col gap-4"
          onSubmit={(e) => {
            e.preventDefault();
            create.mutate();
          }}
        >
          <TextField
            label="Name"
            required
            autoFocus
            value={name}
            onChange={setName}
            error={fieldError(create.error, "token_name")}
            hint="What it is for"
          />
          <Field label="Lifetime">
            {(props) => (
              <Select {...props} value={days} onChange={(e) => setDays(Number(e.target.value))}>
                {[1, 7, 30, 90, 365].map((d) => (
                  <option key={d} value={d}>
                    {d === 1 ? "1 day" : `${d} days`}
                  </option>
                ))}
              </Select>
            )}
          </Field>
          <ErrorNote error={create.error} />
          <div className="flex justify-end gap-2">
            <Button onClick={onClose}>Cancel</Button>
            <Button type="submit" look="primary" busy={create.isPending}>
              Create token
            </Button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

function SSHKey() {
  const key = useQuery(queries.sshKey());
  const [asking, ask] = useState(false);
  const renew = useMutation({ mutationFn: () => send("PUT", "users/me/gitsshkey") });
  return (
    <Card
      title="SSH public key"
      actions={
        <Button small onClick={() => ask(true)}>
          Replace…
        </Button>
      }
    >
      <div className="flex flex-col gap-3">
        <p className="text-muted">
          Workspaces use the private key for Git over SSH. Add this public key to your Git host.
        </p>
        <ErrorNote error={key.error} />
        {key.data && <CopyLine label="SSH public key" text={key.data.public_key.trim()} />}
      </div>
      {asking && (
        <Confirm
          title="Replace the SSH key?"
          action="Replace"
          danger
          onConfirm={() => renew.mutateAsync()}
          onClose={() => ask(false)}
        >
          The old one stops working in your workspaces. Add the new one to your git host.
        </Confirm>
      )}
    </Card>
  );
}
