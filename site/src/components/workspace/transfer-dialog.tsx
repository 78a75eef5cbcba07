// The form that gives a workspace to another user.
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { reread } from "~/api/actions";
import { send } from "~/api/client";
import { candidatesOfWorkspace } from "~/api/sharing";
import type { MinimalUser, TransferWorkspaceRequest, Workspace } from "~/api/types";
import { FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Choice, SearchInput, TextField } from "~/components/ui/form";
import { Pending } from "~/components/ui/pending";
import { useDebounced } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { toast } from "~/lib/toasts";

// transfer gives a workspace to another user. A workspace that is not stopped is stopped first: the answer is the
// workspace as it is until then.
const transfer = (workspace: string, request: TransferWorkspaceRequest) =>
  send("POST workspaces/{workspace}/transfer", { workspace, body: request });

export default function TransferDialog({ workspace: w, onClose }: { workspace: Workspace; onClose: () => void }) {
  const [search, setSearch] = useState("");
  const [chosen, choose] = useState<MinimalUser | null>(null);
  const [name, setName] = useState(w.name);
  const [at, navigate] = useLocation();
  const client = useQueryClient();
  const wanted = useDebounced(search.trim(), 200);
  const found = useQuery({
    queryKey: ["users", "new-owners", w.id, wanted],
    queryFn: ({ signal }) => candidatesOfWorkspace(w.organization_id, w.owner_id)(wanted, signal),
    placeholderData: keepPreviousData,
  });
  const request = useMutation({
    mutationFn: () => transfer(w.id, { owner: chosen!.id, ...(name === w.name ? {} : { name }) }),
    onSuccess: async (now) => {
      const moved = now.owner_id !== w.owner_id;
      const text = moved
        ? `${w.name} now belongs to ${now.owner_name}.`
        : `${w.name} is being stopped. Then it belongs to ${chosen!.username}.`;
      toast({ tone: "ok", text });
      onClose();
      if (moved && at.startsWith(paths.workspace(w.owner_name, w.name)))
        navigate(paths.workspace(now.owner_name, now.name));
      await reread(client, w.id);
    },
  });
  const users = found.data?.users ?? [];
  const shown = chosen && !users.some((u) => u.id === chosen.id) ? [chosen, ...users] : users;
  return (
    <FormDialog title={`Transfer ${w.name}`} request={request} submit="Transfer" disabled={!chosen} onClose={onClose}>
      <p className="text-muted">
        The workspace is stopped first. {w.owner_name} loses access, and its sharing, shared ports and scheduled starts
        end. Its files stay: the new owner can read what {w.owner_name} left in it. The next start may replace resources
        whose names contain the owner. <DocsLink to="sharing">Sharing</DocsLink>
      </p>
      <SearchInput
        label="Search members"
        placeholder="Search members"
        className="max-w-none"
        autoFocus
        value={search}
        onChange={setSearch}
      />
      <Pending query={found} what="members" />
      {found.data && (
        <fieldset className="flex max-h-60 flex-col gap-2 overflow-y-auto p-0.5">
          <legend className="sr-only">New owner</legend>
          {shown.length === 0 && <p className="text-muted">No other member of the organization matches.</p>}
          {shown.map((u) => (
            <Choice
              key={u.id}
              type="radio"
              name="new-owner"
              title={u.username}
              about={u.name ?? ""}
              checked={chosen?.id === u.id}
              onChange={() => choose(u)}
            />
          ))}
        </fieldset>
      )}
      <TextField
        name="name"
        label="Name"
        hint="The new owner must not have another workspace of this name."
        value={name}
        onChange={setName}
        autoComplete="off"
        spellCheck={false}
      />
    </FormDialog>
  );
}
