// What the form of a template's parameters looks like for the values so far.
import { get, send } from "./client";
import { gone } from "./queries";
import type { EvaluateParametersResponse, TemplateVersionParameter } from "./types";

// evaluate asks the server. A version whose parameters were read before the server could work them out has a fixed form.
export async function evaluate(version: string, id: number, inputs: Record<string, string>, owner: string): Promise<EvaluateParametersResponse> {
  try {
    return await send<EvaluateParametersResponse>("POST", `templateversions/${version}/dynamic-parameters/evaluate`, { id, inputs, owner_id: owner });
  } catch (err) {
    if (!gone(err)) throw err;
    const fixed = await get<TemplateVersionParameter[]>(`templateversions/${version}/rich-parameters`);
    return { id, diagnostics: [], parameters: fixed.map((p, order) => preview(p, order, inputs[p.name])) };
  }
}

function preview(p: TemplateVersionParameter, order: number, input: string | undefined): EvaluateParametersResponse["parameters"][number] {
  const rule = {
    validation_error: p.validation_error ?? "", validation_regex: p.validation_regex || null, validation_min: p.validation_min ?? null,
    validation_max: p.validation_max ?? null, validation_monotonic: p.validation_monotonic || null,
  };
  return {
    ...p, order, styling: null, diagnostics: [], display_name: p.display_name ?? "",
    default_value: { value: p.default_value, valid: !p.required },
    value: { value: input ?? p.default_value, valid: input !== undefined || !p.required },
    options: p.options.map((o) => ({ ...o, value: { value: o.value, valid: true } })),
    validations: [rule],
  };
}
