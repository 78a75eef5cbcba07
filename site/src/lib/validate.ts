// Validation of parameters while the user types. The server checks again.
import type { PreviewParameter } from "~/api/types";

// validate returns what is wrong with a value, or "". before is the value of the last build.
export function validate(p: PreviewParameter, value: string, before?: string): string {
  if (value === "") return p.required && p.form_type !== "checkbox" && p.form_type !== "switch" ? "Enter a value." : "";
  if (p.type === "list(string)") {
    const list = parseList(value);
    if (!list) return "Enter a list of values.";
    const strange = p.options.length > 0 && list.find((v) => !p.options.some((o) => o.value.value === v));
    return strange ? `Choose from the options: ${strange} is not one of them.` : "";
  }
  if (p.options.length > 0 && !p.options.some((o) => o.value.value === value))
    return `Choose from the options: ${value} is not one of them.`;
  if (p.type === "bool" && value !== "true" && value !== "false") return "Enter true or false.";
  if (p.type === "number" && (value.trim() === "" || !Number.isFinite(Number(value)))) return "Enter a number.";
  for (const v of p.validations) {
    const unbounded =
      (v.validation_min === null && v.validation_error.includes("{min}")) ||
      (v.validation_max === null && v.validation_error.includes("{max}"));
    const wrong = (text: string) =>
      unbounded || v.validation_error === ""
        ? text
        : v.validation_error
            .replaceAll("{min}", String(v.validation_min))
            .replaceAll("{max}", String(v.validation_max))
            .replaceAll("{value}", value);
    if (v.validation_regex && !matches(v.validation_regex, value))
      return wrong(`This must match ${v.validation_regex}.`);
    if (p.type !== "number") continue;
    const n = Number(value);
    if (v.validation_min !== null && n < v.validation_min) return wrong(`Enter at least ${v.validation_min}.`);
    if (v.validation_max !== null && n > v.validation_max) return wrong(`Enter at most ${v.validation_max}.`);
    if (before !== undefined && before !== "" && v.validation_monotonic === "increasing" && n < Number(before))
      return `Enter at least ${before}: the value can only increase.`;
    if (before !== undefined && before !== "" && v.validation_monotonic === "decreasing" && n > Number(before))
      return `Enter at most ${before}: the value can only decrease.`;
  }
  return "";
}

// isLocked reports whether the value of the last build stays, because the parameter is set once, when the workspace is
// created. A value that the template no longer allows must be replaced.
export function isLocked(p: PreviewParameter, before: string | undefined): boolean {
  return !p.mutable && before !== undefined && (before === "" || validate(p, before) === "");
}

// The server uses another dialect of regular expressions. It alone checks those that JavaScript cannot parse.
function matches(expression: string, value: string): boolean {
  try {
    return new RegExp(expression.replace(/^\(\?[ims]+\)/, ""), expression.startsWith("(?i)") ? "iu" : "u").test(value);
  } catch {
    return true;
  }
}

export function parseList(value: string): string[] | undefined {
  if (value === "") return [];
  try {
    const list: unknown = JSON.parse(value);
    return Array.isArray(list) && list.every((v) => typeof v === "string") ? list : undefined;
  } catch {
    return undefined;
  }
}
