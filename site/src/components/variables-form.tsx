import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { queries } from "~/api/queries";
import { Button, ErrorNote, Loading, TextField } from "./ui";

interface Props {
  version: string;
  busy: boolean;
  error: unknown;
  onSubmit: (values: { name: string; value: string }[]) => void;
}

// VariablesForm asks for a template version's Terraform variables, which apply to all its workspaces.
export function VariablesForm({ version, busy, error, onSubmit }: Props) {
  const variables = useQuery(queries.variables(version));
  const [values, setValues] = useState<Record<string, string>>({});
  if (variables.error) return <ErrorNote error={variables.error} />;
  if (!variables.data) return <Loading what="variables" />;
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(e) => {
        e.preventDefault();
        // An untouched field keeps its value. Secrets cannot be read: they are entered again or left as they are.
        onSubmit(
          variables.data
            .filter((v) => values[v.name] !== undefined || (v.value !== "" && !v.sensitive))
            .map((v) => ({ name: v.name, value: values[v.name] ?? v.value })),
        );
      }}
    >
      <div className="grid gap-4 sm:grid-cols-2">
        {variables.data.map((v) => (
          <TextField
            key={v.name}
            label={<code>{v.name}</code>}
            hint={[v.description, v.type].filter(Boolean).join(" · ")}
            required={v.required && v.value === ""}
            type={v.sensitive ? "password" : "text"}
            autoComplete="off"
            value={values[v.name] ?? v.value}
            placeholder={v.sensitive ? "" : v.default_value}
            onChange={(value) => setValues({ ...values, [v.name]: value })}
          />
        ))}
      </div>
      <ErrorNote error={error} />
      <div>
        <Button type="submit" look="primary" busy={busy}>
          Import with these values
        </Button>
      </div>
    </form>
  );
}
