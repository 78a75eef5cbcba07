import { TextField } from "./form";

// parseTags reads "environment=on-prem, gpu=yes".
export const parseTags = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split(/[,\n]/)
      .map((t) => t.trim())
      .filter(Boolean)
      .map((t) => {
        const at = t.indexOf("=");
        return at < 0 ? [t, ""] : [t.slice(0, at).trim(), t.slice(at + 1).trim()];
      }),
  );

export function TagsInput({
  value,
  onChange,
  label = "Provisioner tags",
  hint = "Its jobs run only on provisioners with all of these tags. Leave empty to use provisioners without tags.",
}: {
  value: string;
  onChange: (v: string) => void;
  label?: string;
  hint?: string;
}) {
  return (
    <TextField
      label={label}
      value={value}
      onChange={onChange}
      placeholder="environment=on-prem"
      title="Use name=value pairs, separated by commas."
      autoComplete="off"
      spellCheck={false}
      hint={hint}
      pattern="\s*([^=,\s]+=[^=,]*)?(,\s*[^=,\s]+=[^=,]*)*\s*"
    />
  );
}
