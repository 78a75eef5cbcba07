import { useMutation } from "@tanstack/react-query";
import { send } from "~/api/client";
import type { OrganizationInvitation } from "~/api/types";
import { Button } from "~/components/ui/button";
import { ErrorNote } from "~/components/ui/error-note";

// Invitations asks the user to accept or decline invitations to organizations.
export default function Invitations({ of }: { of: OrganizationInvitation[] }) {
  return of.map((i) => <Invitation key={i.organization_id} of={i} />);
}

function Invitation({ of }: { of: OrganizationInvitation }) {
  const answer = useMutation({
    mutationFn: (word: "accept" | "decline") =>
      send(`POST users/{user}/invitations/{organization}/${word}`, { user: "me", organization: of.organization_id }),
  });
  const name = of.organization_display_name || of.organization_name;
  return (
    <section
      aria-label={`Invitation to ${name}`}
      className="flex flex-wrap items-center gap-3 border-b border-line bg-panel px-4 py-2 text-sm"
    >
      <span className="grow">
        <strong>{of.invited_by}</strong> invites you to the organization <strong>{name}</strong>. If you accept, its
        administrators can create workspaces for you.
      </span>
      {answer.error && <ErrorNote error={answer.error} />}
      <Button look="primary" disabled={answer.isPending} onClick={() => answer.mutate("accept")}>
        Accept
      </Button>
      <Button disabled={answer.isPending} onClick={() => answer.mutate("decline")}>
        Decline
      </Button>
    </section>
  );
}
