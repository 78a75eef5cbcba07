// Searches that a user keeps under a name, for one list. The server stores them.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { SavedSearch } from "~/api/types";
import { Button } from "./button";
import { DoneDialog } from "./dialog";
import { ErrorNote } from "./error-note";
import { Form, TextField } from "./form";
import { IconButton } from "./icon-button";

interface SavedSearchesProps {
  page?: string; // the list, as the API calls it; "" for workspaces
  search: string; // the current one
  shown?: string; // what stands for the current one, where it is no text for people
  onSearch: (search: string) => void;
}

export function SavedSearches({ page = "", search, shown = search, onSearch }: SavedSearchesProps) {
  const client = useQueryClient();
  const stored = useQuery(queries.preferences());
  const all = stored.data?.saved_searches ?? [];
  const [name, setName] = useState("");
  const here = (s: SavedSearch) => (s.page ?? "") === page;
  const others = (without: string) => all.filter((s) => !here(s) || s.name !== without);
  const change = useMutation({
    mutationFn: (saved_searches: SavedSearch[]) =>
      send("PUT users/{user}/preferences", { user: "me", body: { saved_searches } }),
    onSuccess: (next) => client.setQueryData(queries.preferences().queryKey, next),
  });
  const save = useMutation({
    mutationFn: () =>
      change.mutateAsync([...others(name.trim()), { name: name.trim(), query: search, ...(page && { page }) }]),
    onSuccess: () => setName(""),
  });
  const mine = all.filter(here);
  return (
    <>
      <ErrorNote error={stored.error ?? (save.error ? null : change.error)} />
      {mine.length > 0 && (
        <ul aria-label="Saved searches" className="flex flex-col gap-1">
          {mine.map((s) => (
            <li key={s.name} className="flex items-center gap-2">
              <Button className="min-w-0 flex-1 justify-start!" title={s.query} onClick={() => onSearch(s.query)}>
                <span className="truncate">{s.name}</span>
              </Button>
              <IconButton
                label={`Remove ${s.name}`}
                disabled={change.isPending}
                onClick={() => change.mutate(others(s.name))}
              >
                <Trash2 />
              </IconButton>
            </li>
          ))}
        </ul>
      )}
      {search !== "" && (
        <Form request={save} submit="Save search" disabled={name.trim() === ""}>
          <TextField
            name="saved_searches"
            label={
              <>
                Save <code className="break-all">{shown}</code> as
              </>
            }
            value={name}
            onChange={setName}
            autoComplete="off"
          />
        </Form>
      )}
      {search === "" && mine.length === 0 && stored.data && (
        <p className="text-muted">Search or filter the list first, then save the search here under a name.</p>
      )}
    </>
  );
}

interface SavedSearchesDialogProps extends SavedSearchesProps {
  onClose: () => void;
}

export default function SavedSearchesDialog({ onSearch, onClose, ...rest }: SavedSearchesDialogProps) {
  return (
    <DoneDialog title="Saved views" onClose={onClose}>
      <SavedSearches
        {...rest}
        onSearch={(search) => {
          onSearch(search);
          onClose();
        }}
      />
    </DoneDialog>
  );
}
