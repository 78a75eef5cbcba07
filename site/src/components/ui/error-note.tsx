import { ApiError } from "~/api/client";
import { Note } from "./note";

interface ErrorNoteProps {
  error: unknown;
  title?: string;
  except?: (field: string) => boolean; // fields that show their errors themselves
}

// ErrorNote shows an error with the server's message.
export function ErrorNote({ error, title, except }: ErrorNoteProps) {
  if (!error) return null;
  const message = error instanceof Error ? error.message : String(error);
  const api = error instanceof ApiError ? error : undefined;
  const fields = api?.validations.filter((v) => !except?.(v.field)) ?? [];
  return (
    <Note title={title ? `${title}: ${message}` : message}>
      {api?.detail}
      {fields.length > 0 && (
        <ul className="list-disc pl-5">
          {fields.map((v) => (
            <li key={v.field}>
              <code>{v.field}</code>: {v.detail}
            </li>
          ))}
        </ul>
      )}
    </Note>
  );
}
