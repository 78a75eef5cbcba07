import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { Ban, KeyRound, Plus, X } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { post, send } from "~/api/client";
import { lists, pageOf, rowsPerPage } from "~/api/lists";
import { queries } from "~/api/queries";
import type { APIKey, User } from "~/api/types";
import { Look } from "~/components/account/look";
import { NotificationPreferences } from "~/components/account/notification-preferences";
import { QuietHours } from "~/components/account/quiet-hours";
import { UserSecrets } from "~/components/account/secrets";
import { SSHKeys } from "~/components/account/ssh-keys";
import { TemplateConsents } from "~/components/template/consents";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyLine } from "~/components/ui/copy";
import { Confirm, DoneDialog, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox, Field, Form, Select, TextField, useFields } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { IconButton } from "~/components/ui/icon-button";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pager } from "~/components/ui/pager";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";
import { useMe } from "~/components/ui/user";
import { AccountQuota } from "~/components/workspace/quota";
import { plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

const Sessions = lazy(() => import("~/components/account/sessions"));
const Devices = lazy(() => import("~/components/account/devices"));

export default function Account() {
  useTitle("Account");
  const me = useMe();
  return (
    <Page narrow title="Account" subtitle={me.email}>
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Profile />
        {me.login_type === "password" ? <Password /> : <LoginType type={me.login_type} />}
        <Look />
        <QuietHours />
        <AccountQuota />
      </div>
      <Tokens />
      <Suspense>
        <Sessions />
      </Suspense>
      <SSHKeys />
      <Suspense>
        <Devices />
      </Suspense>
      <UserSecrets />
      <TemplateConsents />
      <NotificationPreferences />
      <LinkedAccounts />
      <SSHKey />
    </Page>
  );
}

function Profile() {
  const me = useMe();
  const { values, field } = useFields({ username: me.username, name: me.name });
  const save = useMutation({
    mutationFn: () => send("PUT users/{user}/profile", { user: "me", body: values }),
  });
  return (
    <Card title="Profile">
      <Form request={save} submit="Save" done="Saved">
        <TextField label="Username" required hint="Part of your workspaces' addresses." {...field("username")} />
        <TextField label="Full name" {...field("name")} />
      </Form>
    </Card>
  );
}

function Password() {
  const { values, field, reset } = useFields({ old_password: "", password: "" });
  const save = useMutation({
    mutationFn: () => send("PUT users/{user}/password", { user: "me", body: values }),
    onSuccess: reset,
  });
  return (
    <Card title="Password">
      <Form request={save} submit="Change password" done="Changed">
        <TextField
          label="Current password"
          type="password"
          required
          autoComplete="current-password"
          {...field("old_password")}
        />
        <TextField label="New password" type="password" required autoComplete="new-password" {...field("password")} />
      </Form>
      <Convert />
    </Card>
  );
}

const loginTypes: Partial<Record<User["login_type"], string>> = { oidc: "OpenID Connect", github: "GitHub" };

// LoginType says how a user without a password signs in.
function LoginType({ type }: { type: User["login_type"] }) {
  return (
    <Card title="Sign-in">
      {loginTypes[type] ? (
        <p>
          You sign in with {loginTypes[type]}. Your password and your email address are kept at your identity provider.
        </p>
      ) : (
        <p>This account cannot sign in. It acts with tokens only.</p>
      )}
    </Card>
  );
}

// Convert changes how the user signs in, to one of the configured identity providers.
function Convert() {
  const methods = useQuery(queries.authMethods());
  const [to, choose] = useState<"oidc" | "github" | null>(null);
  if (!methods.data?.oidc.enabled && !methods.data?.github.enabled) return null;
  return (
    <div className="mt-4 flex flex-wrap items-center gap-2 border-t border-line pt-4">
      <span className="text-muted">Or sign in without a password:</span>
      {methods.data.oidc.enabled && (
        <Button small onClick={() => choose("oidc")}>
          {`Use ${methods.data.oidc.signInText || "OpenID Connect"}…`}
        </Button>
      )}
      {methods.data.github.enabled && (
        <Button small onClick={() => choose("github")}>
          Use GitHub…
        </Button>
      )}
      {to && <ConvertDialog to={to} onClose={() => choose(null)} />}
    </div>
  );
}

function ConvertDialog({ to, onClose }: { to: "oidc" | "github"; onClose: () => void }) {
  const { values, field } = useFields({ password: "" });
  const convert = useMutation({
    mutationFn: () => send("POST users/{user}/convert-login", { user: "me", body: { ...values, to_type: to } }),
    onSuccess: (begun) => {
      const query = new URLSearchParams({ oidc_merge_state: begun.state_string, redirect: paths.account });
      location.assign(`${paths.signIn[to]}?${query}`);
    },
  });
  return (
    <FormDialog title="Change how you sign in" request={convert} submit="Continue" onClose={onClose}>
      <p>
        Confirm your password, then sign in at the identity provider. From then on your account signs in only there, and
        the password is deleted.
      </p>
      <TextField
        label="Password"
        type="password"
        required
        autoFocus
        autoComplete="current-password"
        {...field("password")}
      />
    </FormDialog>
  );
}

// LinkedAccounts are those at the services that the server is configured for. Most servers have none.
function LinkedAccounts() {
  const all = useQuery(queries.externalAuths());
  if (all.error) return <ErrorNote error={all.error} />;
  if (!all.data?.providers.length) return null;
  return (
    <Card title="Linked accounts" actions={<DocsLink to="external-auth">External logins</DocsLink>}>
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

const over = (t: APIKey) => Date.parse(t.expires_at) <= Date.now();

export function Tokens() {
  const [expired, showExpired] = useState(false);
  const [page, setPage] = useState(0);
  const tokens = useQuery({ ...lists.tokens(expired, page), placeholderData: keepPreviousData });
  const { rows, count } = pageOf(tokens.data, page);
  const [adding, add] = useState(false);
  const [expiring, expire] = useState<APIKey | null>(null);
  const [removing, remove] = useState<APIKey | null>(null);
  return (
    <>
      <Card
        flush
        title="Tokens"
        actions={
          <span className="flex flex-wrap items-center gap-4">
            <DocsLink to="tokens">Tokens and scopes</DocsLink>
            <Checkbox
              label="Show expired"
              checked={expired}
              onChange={(on) => {
                showExpired(on);
                setPage(0);
              }}
            />
            <Button small onClick={() => add(true)}>
              <Plus /> New token
            </Button>
          </span>
        }
      >
        <Pending query={tokens} what="tokens" />
        {tokens.data && count === 0 && (
          <Empty icon={<KeyRound />} title="No tokens">
            Scripts use tokens to act as you. <code>coder login</code> needs none: it creates a session of its own.
          </Empty>
        )}
        {rows.length > 0 && (
          <Table
            label="Tokens"
            rows={rows}
            id={(t) => t.id}
            columns={[
              { name: "Name", cell: (t) => t.token_name, className: "font-medium" },
              { name: "ID", cell: (t) => t.id, className: mono },
              { name: "Scopes", cell: (t) => [...t.scopes, ...t.allow_list.filter((a) => a !== "*:*")].join(", ") },
              { name: "Last used", className: "whitespace-nowrap", cell: (t) => <Ago at={t.last_used} /> },
              {
                name: "Expires",
                className: "whitespace-nowrap",
                cell: (t) => (over(t) ? <Badge>Expired</Badge> : <Ago at={t.expires_at} ahead />),
              },
              {
                name: "Actions",
                action: true,
                cell: (t) => (
                  <span className="inline-flex gap-1">
                    {!over(t) && (
                      <IconButton label={`Expire token ${t.token_name}`} onClick={() => expire(t)}>
                        <Ban />
                      </IconButton>
                    )}
                    <IconButton label={`Delete token ${t.token_name}`} onClick={() => remove(t)}>
                      <X />
                    </IconButton>
                  </span>
                ),
              },
            ]}
          />
        )}
        {adding && <NewToken onClose={() => add(false)} />}
        {expiring && (
          <Confirm
            title={`Expire token ${expiring.token_name}?`}
            action="Expire"
            onConfirm={() => send("PUT users/{user}/keys/{key}/expire", { user: "me", key: expiring.id })}
            onClose={() => expire(null)}
          >
            Programs that use this token lose access immediately. It stays in the list of expired tokens.
          </Confirm>
        )}
        {removing && (
          <Confirm
            title={`Delete token ${removing.token_name}?`}
            action="Delete"
            danger
            onConfirm={() => send("DELETE users/{user}/keys/{key}", { user: "me", key: removing.id })}
            onClose={() => remove(null)}
          >
            {over(removing)
              ? "It vanishes from the list of expired tokens."
              : "Programs that use this token lose access immediately."}
          </Confirm>
        )}
      </Card>
      <Pager page={page} size={rowsPerPage} rows={rows.length} count={count} onPage={setPage} />
    </>
  );
}

const day = 24 * 3600 * 1e9; // nanoseconds, as the API counts

function NewToken({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState("");
  const config = useQuery(queries.tokenConfig());
  const longest = Math.floor((config.data?.max_token_lifetime ?? 30 * day) / day);
  const choices = [...new Set([1, 7, 30, 90, 365, longest])].filter((d) => d > 0 && d <= longest).sort((a, b) => a - b);
  const [chosen, setDays] = useState(30);
  const days = Math.min(chosen, Math.max(longest, 1));
  const create = useMutation({
    mutationFn: () =>
      post("users/{user}/keys/tokens", {
        user: "me",
        body: {
          token_name: name,
          lifetime: Math.min(days * day, config.data?.max_token_lifetime ?? days * day),
          scopes: scopes.split(/[\s,]+/).filter(Boolean),
        },
      }),
  });
  if (create.data)
    return (
      <DoneDialog title="New token" onClose={onClose}>
        <Note tone="warn" title="Copy this token now. It is shown only once.">
          Keep it secret: it acts as you{scopes.trim() ? " within its scopes" : ", with full access to your account"}.
        </Note>
        <CopyLine label="token" text={create.data.key} />
      </DoneDialog>
    );
  return (
    <FormDialog title="New token" request={create} submit="Create token" onClose={onClose}>
      <TextField
        label="Name"
        name="token_name"
        required
        autoFocus
        value={name}
        onChange={setName}
        hint="What you will use it for"
      />
      <TextField
        label="Scopes"
        name="scopes"
        value={scopes}
        onChange={setScopes}
        hint="What the token may do, such as workspace:read. Empty: everything."
      />
      <Field label="Lifetime">
        {(props) => (
          <Select {...props} value={days} onChange={(e) => setDays(Number(e.target.value))}>
            {choices.map((d) => (
              <option key={d} value={d}>
                {plural(d, "day")}
              </option>
            ))}
          </Select>
        )}
      </Field>
    </FormDialog>
  );
}

function SSHKey() {
  const key = useQuery(queries.sshKey());
  const [asking, ask] = useState(false);
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
        <Pending query={key} what="key" />
        {key.data && <CopyLine label="SSH public key" text={key.data.public_key.trim()} />}
      </div>
      {asking && (
        <Confirm
          title="Replace SSH key?"
          action="Replace"
          danger
          onConfirm={() => send("PUT users/{user}/gitsshkey", { user: "me" })}
          onClose={() => ask(false)}
        >
          Your workspaces stop using the old key. Add the new one to your Git host.
        </Confirm>
      )}
    </Card>
  );
}
