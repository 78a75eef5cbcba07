import { type UseMutationResult, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { queries } from "~/api/queries";
import type { VariableValue } from "~/api/types";
import { Form, TextField } from "~/components/ui/form";
import { Pending } from "~/components/ui/pending";

interface Props {
  version: string;
  request: UseMutationResult<unknown, Error, VariableValue[]>;
}

// VariablesForm asks for a template version's Terraform variables, which apply to all its workspaces.
export function VariablesForm({ version, request }: Props) {
  const variables = useQuery(queries.variables(version));
  const [values, setValues] = useState<Record<string, string>>({});
  const { data } = variables;
  if (!data) return <Pending query={variables} what="variables" />;
  // An untouched field keeps its value. Secrets cannot be read: they stay unless the user enters new ones.
  const given = () =>
    data
      .filter((v) => values[v.name] !== undefined || (v.value !== "" && !v.sensitive))
      .map((v) => ({ name: v.name, value: values[v.name] ?? v.value }));
  return (
    <Form request={{ ...request, mutate: () => request.mutate(given()) }} submit="Import with these values">
      <div className="grid gap-4 sm:grid-cols-2">
        {data.map((v) => (
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
    </Form>
  );
}
