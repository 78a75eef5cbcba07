// The templates whose workspaces get the user's credentials.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Handshake } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { ask } from "~/api/queries";
import type { TemplateConsent, Workspace } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Note } from "~/components/ui/note";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";

const given = ask(["template-consents"], "users/{user}/template-consents", { user: "me" });

const nameOf = (c: TemplateConsent) => c.template_display_name || c.template_name;

export function TemplateConsents() {
  const consents = useQuery(given);
  const client = useQueryClient();
  const [revoking, revoke] = useState<TemplateConsent | null>(null);
  return (
    <Card
      flush
      title="Templates with your credentials"
      actions={<DocsLink to="secrets">Consent to a template</DocsLink>}
    >
      <Pending query={consents} what="consents" />
      {consents.data?.length === 0 && (
        <Empty icon={<Handshake />} title="No templates">
          Workspaces of a template get your credentials after you have started one of them yourself.
        </Empty>
      )}
      {consents.data && consents.data.length > 0 && (
        <Table
          label="Templates with your credentials"
          rows={consents.data}
          id={(c) => c.template_id}
          columns={[
            { name: "Template", cell: nameOf, className: "font-medium" },
            { name: "Organization", cell: (c) => c.organization_name },
            { name: "Since", cell: (c) => <Ago at={c.created_at} /> },
            {
              name: "Actions",
              action: true,
              cell: (c) => (
                <Button small onClick={() => revoke(c)} aria-label={`Revoke consent to ${nameOf(c)}`}>
                  Revoke
                </Button>
              ),
            },
          ]}
        />
      )}
      {revoking && (
        <Confirm
          title={`Revoke consent to ${nameOf(revoking)}?`}
          action="Revoke"
          danger
          onConfirm={async () => {
            await send("DELETE users/{user}/template-consents/{template}", {
              user: "me",
              template: revoking.template_id,
            });
            await client.invalidateQueries({ queryKey: given.queryKey });
          }}
          onClose={() => revoke(null)}
        >
          Its workspaces, running ones too, get no session token, SSH key, external logins and secrets of yours. What
          the template has already read stays with it. Starting one of its workspaces gives them again.
        </Confirm>
      )}
    </Card>
  );
}

// Withheld tells that the workspace has none of its owner's credentials.
export function Withheld({ workspace: w }: { workspace: Workspace }) {
  if (!w.latest_build.credentials_withheld || w.latest_build.transition !== "start") return null;
  return (
    <Note tone="warn" title={`No credentials of ${w.owner_name}`}>
      {w.owner_name} has not started a workspace of this template themselves, or has revoked that: it has no session
      token, SSH key, external logins and secrets. A restart by {w.owner_name} gives them.
    </Note>
  );
}
