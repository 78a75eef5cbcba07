// Who may use and administer a template.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import { candidatesOfTemplate } from "~/api/sharing";
import type { Template } from "~/api/types";
import { Card } from "~/components/ui/card";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox } from "~/components/ui/form";
import { type Change, Sharing } from "~/components/ui/sharing";

const roles = {
  use: "See the template and create workspaces from it.",
  admin: "See and use it, read its source, push versions, edit, share and delete it.",
};

export function TemplateAccess({ template: t }: { template: Template }) {
  const acl = useQuery(queries.templateRights(t.id));
  const client = useQueryClient();
  const update = async ({ users, groups }: Change) => {
    await send("PATCH templates/{template}/acl", { template: t.id, body: { user_perms: users, group_perms: groups } });
    await client.invalidateQueries({ queryKey: queries.templateRights(t.id).queryKey });
  };
  const everyone = t.organization_id; // the id of the group Everyone
  const open = acl.data?.group.some((g) => g.id === everyone);
  const makePrivate = useMutation({
    mutationFn: (on: boolean) => update({ users: {}, groups: { [everyone]: on ? "" : "use" } }),
    onSettled: () => want(undefined),
  });
  const [wanted, want] = useState<boolean>(); // until it is so
  return (
    <>
      {acl.data && (
        <Card title="Private">
          <div className="flex flex-col gap-3">
            <Checkbox
              label="Hide this template from members with whom it is not shared"
              hint={
                "Existing workspaces remain: their owners use, stop, start and delete them, but cannot update them " +
                "to another version until they have access again."
              }
              checked={wanted ?? !open}
              disabled={wanted !== undefined}
              onChange={(on) => {
                want(on);
                makePrivate.mutate(on);
              }}
            />
            <ErrorNote error={makePrivate.error} />
          </div>
        </Card>
      )}
      <Sharing
        id={t.id}
        of={t.name}
        query={acl}
        find={candidatesOfTemplate(t.id)}
        roles={roles}
        empty="Only template admins see it. Share it with users or groups of the organization."
        removed="They no longer see the template. They keep their workspaces, but cannot update them."
        onChange={update}
      />
    </>
  );
}
