// What a user keeps for the list of workspaces: searches with a name, and columns. The server stores both.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { UpdateUserPreferencesRequest } from "~/api/types";
import { Button } from "~/components/ui/button";
import { DoneDialog } from "~/components/ui/dialog";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox, Form, TextField } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
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
  const saved = stored.data?.saved_searches ?? [];
  const [name, setName] = useState("");
  const put = async (change: UpdateUserPreferencesRequest) => {
    const next = await send("PUT users/{user}/preferences", { user: "me", body: change });
    client.setQueryData(queries.preferences().queryKey, next);
  };
  const change = useMutation({ mutationFn: put });
  const save = useMutation({
    mutationFn: () =>
      put({ saved_searches: [...saved.filter((s) => s.name !== name.trim()), { name: name.trim(), query: search }] }),
    onSuccess: () => setName(""),
  });
  const show = (column: string, on: boolean) => {
    const chosen = all.map((c) => c.key).filter((key) => (key === column ? on : columns.includes(key)));
    change.mutate({ workspace_columns: chosen });
  };
  return (
    <DoneDialog title="Saved searches and columns" onClose={onClose}>
      <ErrorNote error={stored.error ?? change.error} />
      {saved.length > 0 && (
        <ul aria-label="Saved searches" className="flex flex-col gap-1">
          {saved.map((s) => (
            <li key={s.name} className="flex items-center gap-2">
              <Button
                className="min-w-0 flex-1 justify-start!"
                title={s.query}
                onClick={() => {
                  onSearch(s.query);
                  onClose();
                }}
              >
                <span className="truncate">{s.name}</span>
              </Button>
              <IconButton
                label={`Remove ${s.name}`}
                disabled={change.isPending}
                onClick={() => change.mutate({ saved_searches: saved.filter((other) => other.name !== s.name) })}
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
                Save <code className="break-all">{search}</code> as
              </>
            }
            value={name}
            onChange={setName}
            autoComplete="off"
          />
        </Form>
      )}
      <fieldset className="flex flex-col gap-1.5" disabled={change.isPending}>
        <legend className="mb-1 font-medium">Columns</legend>
        {all.map((c) => (
          <Checkbox key={c.key} label={c.label} checked={columns.includes(c.key)} onChange={(on) => show(c.key, on)} />
        ))}
      </fieldset>
    </DoneDialog>
  );
}
