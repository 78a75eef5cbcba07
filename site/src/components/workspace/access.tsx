// With whom a workspace is shared, and what it means for those who have access.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import { candidatesOfWorkspace } from "~/api/sharing";
import type { Workspace } from "~/api/types";
import { DocsLink } from "~/components/ui/docs-link";
import { Note } from "~/components/ui/note";
import { type Change, Sharing } from "~/components/ui/sharing";
import { useMe } from "~/components/ui/user";

const roles = {
  use: "See the workspace and connect to it.",
  admin: "See, connect to, start, stop, change and share it.",
};

export function WorkspaceSharing({ workspace: w }: { workspace: Workspace }) {
  const acl = useQuery(queries.workspaceSharing(w.id));
  const client = useQueryClient();
  const off = useQuery(queries.organizationSharing(w.organization_id)).data?.sharing_disabled;
  const mine = useMe().id === w.owner_id;
  const update = async ({ users, groups }: Change) => {
    await send("PATCH workspaces/{workspace}/acl", {
      workspace: w.id,
      body: { user_roles: users, group_roles: groups },
    });
    await client.invalidateQueries({ queryKey: ["workspaces"] });
  };
  return (
    <>
      {off && (
        <Note tone="accent" title="Sharing is disabled in this organization">
          Workspaces and their ports cannot be shared. The organization's administrators decide that.
        </Note>
      )}
      {!off && !w.permissions.share && (
        <Note tone="accent" title="You can withdraw sharing, not extend it">
          Only {w.owner_name}, and users with the role Admin, decide who else gets access.
        </Note>
      )}
      <Note tone="warn" title={`All users who connect act as ${mine ? "you" : w.owner_name} in the workspace`}>
        They can read and change every file in it and use the credentials that are in it, such as the Git key and linked
        accounts. Share it only with people to whom you would give these. <DocsLink to="sharing">Sharing</DocsLink>
      </Note>
      <Sharing
        id={w.id}
        of={w.name}
        query={acl}
        find={candidatesOfWorkspace(w.organization_id, w.owner_id)}
        roles={roles}
        narrow={off || !w.permissions.share}
        empty={
          `Only ${mine ? "you" : w.owner_name} can connect.` +
          (w.permissions.share && !off ? " Share it with users or groups of the organization." : "")
        }
        removed={
          "Their sessions, terminals and apps close at once. Processes that they started, and files that they " +
          "changed, remain."
        }
        onChange={update}
      />
    </>
  );
}

// Guest tells a user to whom a workspace does not belong whose it is, and what they may do with it.
export function Guest({ workspace: { owner_id, owner_name, permissions: may } }: { workspace: Workspace }) {
  if (useMe().id === owner_id || !may.connect) return null;
  return (
    <Note tone="accent" title={`${owner_name} shares this workspace with you`}>
      {may.build
        ? "You can connect to it, and start, stop, change and share it. Only its owner can delete it."
        : "You can connect to it. To start or stop it, ask its owner."}{" "}
      Everyone who connects uses the same account and files.
    </Note>
  );
}
