// What a user keeps for the list of workspaces: searches with a name, and columns. The server stores both.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import { DoneDialog } from "~/components/ui/dialog";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox } from "~/components/ui/form";
import { SavedSearches } from "~/components/ui/saved-searches";
import { columns as all } from "~/lib/columns";

interface ListOptionsProps {
  search: string; // the current one
  columns: readonly string[];
  onSearch: (search: string) => void;
  onClose: () => void;
}

export default function ListOptions({ search, columns, onSearch, onClose }: ListOptionsProps) {
  const client = useQueryClient();
  const stored = useQuery(queries.preferences());
  const change = useMutation({
    mutationFn: (workspace_columns: string[]) =>
      send("PUT users/{user}/preferences", { user: "me", body: { workspace_columns } }),
    onSuccess: (next) => client.setQueryData(queries.preferences().queryKey, next),
  });
  const show = (column: string, on: boolean) =>
    change.mutate(all.map((c) => c.key).filter((key) => (key === column ? on : columns.includes(key))));
  return (
    <DoneDialog title="Saved searches and columns" onClose={onClose}>
      <ErrorNote error={stored.error ? null : change.error} />
      <SavedSearches
        search={search}
        onSearch={(query) => {
          onSearch(query);
          onClose();
        }}
      />
      <fieldset className="flex flex-col gap-1.5" disabled={change.isPending}>
        <legend className="mb-1 font-medium">Columns</legend>
        {all.map((c) => (
          <Checkbox key={c.key} label={c.label} checked={columns.includes(c.key)} onChange={(on) => show(c.key, on)} />
        ))}
      </fieldset>
    </DoneDialog>
  );
}
