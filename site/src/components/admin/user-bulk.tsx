// What can be done to the selected users of a list at once.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { send } from "~/api/client";
import { ask, queries } from "~/api/queries";
import type { User } from "~/api/types";
import { Button } from "~/components/ui/button";
import { FormDialog } from "~/components/ui/dialog";
import { Field, Select } from "~/components/ui/form";
import { mayManage, useMe } from "~/components/ui/user";
import { plural } from "~/lib/format";
import { messageOf, toast } from "~/lib/toasts";

type Doing = "suspend" | "activate" | "organization" | "group";

const shownFailures = 5;
const mostAtOnce = 1000; // whom one request can add to a group

interface UserBulkProps {
  selected: User[];
  onDone: () => void;
}

export default function UserBulk({ selected, onDone }: UserBulkProps) {
  const me = useMe();
  const client = useQueryClient();
  const [doing, start] = useState<Doing>();
  const mine = selected.filter((u) => mayManage(me, u));
  const suits = {
    suspend: mine.filter((u) => u.id !== me.id && u.status !== "suspended"),
    activate: mine.filter((u) => u.status === "suspended"),
  };
  // Every user is tried: the server decides about each.
  const each = async (users: User[], what: string, request: (u: User) => Promise<unknown>) => {
    const failures: string[] = [];
    for (const user of users) {
      try {
        await request(user);
      } catch (err) {
        failures.push(`${user.username}: ${messageOf(err)}`);
      }
    }
    finish(what, users.length - failures.length, failures);
  };
  const finish = (what: string, done: number, failures: string[] = []) => {
    if (done > 0) toast({ tone: "ok", text: `${what} ${plural(done, "user")}.` });
    if (failures.length > 0) {
      const more = failures.length > shownFailures ? ` And ${failures.length - shownFailures} more.` : "";
      const named = failures.slice(0, shownFailures).join(" ");
      toast({ tone: "bad", text: `${plural(failures.length, "user")} failed. ${named}${more}` });
    }
    void client.invalidateQueries({ queryKey: ["users"] });
    onDone();
  };
  const button = (what: Doing, label: string, fit: number) => (
    <Button
      small
      look={what === "suspend" ? "danger" : "plain"}
      disabled={fit === 0}
      title={fit === 0 ? "Not possible for any selected user" : undefined}
      onClick={() => start(what)}
    >
      {label}
      {fit > 0 && fit < selected.length && ` ${fit} of ${selected.length}`}…
    </Button>
  );
  const props = { selected, onClose: () => start(undefined) };
  return (
    <>
      {button("suspend", "Suspend", suits.suspend.length)}
      {button("activate", "Activate", suits.activate.length)}
      {button("organization", "Add to organization", selected.length)}
      {button("group", "Add to group", selected.length)}
      {(doing === "suspend" || doing === "activate") && (
        <Status
          users={suits[doing]}
          action={doing}
          onClose={props.onClose}
          run={() =>
            each(suits[doing], doing === "suspend" ? "Suspended" : "Activated", (u) =>
              send(doing === "suspend" ? "PUT users/{user}/status/suspend" : "PUT users/{user}/status/activate", {
                user: u.id,
              }),
            )
          }
        />
      )}
      {doing === "organization" && (
        <AddToOrganization
          {...props}
          run={(users, organization) =>
            each(users, "Added", (u) =>
              send("POST organizations/{organization}/members/{user}", { organization, user: u.id }),
            )
          }
        />
      )}
      {doing === "group" && <AddToGroup {...props} onAdded={(count) => finish("Added", count)} />}
    </>
  );
}

// Names lists whom a change is about.
function Names({ of }: { of: User[] }) {
  return (
    <ul className="max-h-40 list-disc overflow-y-auto pl-5 text-muted" tabIndex={0} aria-label="Users">
      {of.map((u) => (
        <li key={u.id}>{u.username}</li>
      ))}
    </ul>
  );
}

interface StatusProps {
  users: User[];
  action: "suspend" | "activate";
  run: () => Promise<void>;
  onClose: () => void;
}

function Status({ users, action, run, onClose }: StatusProps) {
  const request = useMutation({ mutationFn: run });
  const label = action === "suspend" ? "Suspend" : "Activate";
  return (
    <FormDialog
      title={`${label} ${plural(users.length, "user")}?`}
      request={request}
      submit={label}
      danger={action === "suspend"}
      onClose={onClose}
    >
      <p className="text-muted">
        {action === "suspend"
          ? "Their sessions and tokens stop working immediately. Workspaces stay as they are."
          : "They can sign in again."}
      </p>
      <Names of={users} />
    </FormDialog>
  );
}

interface AddProps {
  selected: User[];
  onClose: () => void;
}

function AddToOrganization({
  selected,
  run,
  onClose,
}: AddProps & { run: (users: User[], organization: string) => Promise<void> }) {
  const organizations = useQuery(queries.organizations());
  const [chosen, choose] = useState("");
  const organization = organizations.data?.find((o) => o.id === chosen);
  const users = selected.filter((u) => !u.organization_ids.includes(chosen));
  const request = useMutation({ mutationFn: () => run(users, organization!.name) });
  return (
    <FormDialog
      title={`Add ${plural(selected.length, "user")} to an organization`}
      request={request}
      submit={organization ? `Add ${plural(users.length, "user")}` : "Add"}
      disabled={!organization || users.length === 0}
      onClose={onClose}
    >
      <Field label="Organization">
        {(props) => (
          <Select {...props} autoFocus value={chosen} onChange={(e) => choose(e.target.value)}>
            <option value="">Choose one</option>
            {organizations.data?.map((o) => (
              <option key={o.id} value={o.id}>
                {o.display_name || o.name}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {organization && users.length < selected.length && (
        <p className="text-muted">{selected.length - users.length} already belong to it.</p>
      )}
      {organization && users.length > 0 && <Names of={users} />}
    </FormDialog>
  );
}

function AddToGroup({ selected, onAdded, onClose }: AddProps & { onAdded: (count: number) => void }) {
  const groups = useQuery(ask(["organizations", "groups", "all"], "groups"));
  const [chosen, choose] = useState("");
  // The group of everyone has the organization's id, and the identity provider keeps some others.
  const open = groups.data?.filter((g) => g.id !== g.organization_id && g.source !== "oidc") ?? [];
  const several = new Set(open.map((g) => g.organization_id)).size > 1;
  const group = open.find((g) => g.id === chosen);
  const users = selected.filter((u) => group && u.organization_ids.includes(group.organization_id));
  const request = useMutation({
    mutationFn: async () => {
      for (let i = 0; i < users.length; i += mostAtOnce) {
        const ids = users.slice(i, i + mostAtOnce).map((u) => u.id);
        await send("PATCH groups/{group}", { group: chosen, body: { add_users: ids } });
      }
    },
    onSuccess: () => onAdded(users.length),
  });
  return (
    <FormDialog
      title={`Add ${plural(selected.length, "user")} to a group`}
      request={request}
      submit={group ? `Add ${plural(users.length, "user")}` : "Add"}
      disabled={!group || users.length === 0}
      onClose={onClose}
    >
      <Field label="Group" hint={groups.data && open.length === 0 ? "No group takes members here." : undefined}>
        {(props) => (
          <Select {...props} autoFocus value={chosen} onChange={(e) => choose(e.target.value)}>
            <option value="">Choose one</option>
            {open.map((g) => (
              <option key={g.id} value={g.id}>
                {g.display_name || g.name}
                {several && ` (${g.organization_display_name || g.organization_name})`}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {group && users.length < selected.length && (
        <p className="text-muted">
          {selected.length - users.length} do not belong to {group.organization_display_name || group.organization_name}
          , and are left out.
        </p>
      )}
      {users.length > 0 && <Names of={users} />}
    </FormDialog>
  );
}
