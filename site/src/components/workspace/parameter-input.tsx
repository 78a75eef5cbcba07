// One parameter's input, of the form type that its template asks for.
import { X } from "lucide-react";
import { Slider, Switch } from "radix-ui";
import { Fragment, type ReactNode, useState } from "react";
import type { PreviewParameter } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { Choice, Input, inputClass, Select } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { parseList } from "~/lib/validate";

interface Props {
  p: PreviewParameter;
  id: string;
  value: string;
  disabled: boolean;
  invalid: boolean;
  describedBy: string;
  onChange: (value: string) => void;
}

// kindOf is the form type, or the default for the parameter's type.
function kindOf(p: PreviewParameter): string {
  if (p.form_type && p.form_type !== "default" && p.form_type !== "error") return p.form_type;
  if (p.type === "bool") return "checkbox";
  if (p.type === "list(string)") return p.options.length > 0 ? "multi-select" : "tag-select";
  return p.options.length > 0 ? "radio" : "input";
}

export function ParameterInput(props: Props) {
  const { p, id, value, disabled, invalid, describedBy, onChange } = props;
  const common = { id, disabled, "aria-describedby": describedBy, "aria-invalid": invalid || undefined };
  const placeholder = p.styling?.placeholder;
  switch (kindOf(p)) {
    case "textarea":
      return (
        <textarea
          {...common}
          rows={5}
          placeholder={placeholder}
          value={value}
          onChange={(e) => onChange(e.target.value)}
          className={cx(
            inputClass,
            "max-w-xl py-1.5 font-mono text-[13px]",
            p.styling?.mask_input && "[-webkit-text-security:disc]",
          )}
        />
      );
    case "dropdown":
      return <Dropdown {...props} />;
    case "radio":
      return <Radios {...props} />;
    case "checkbox":
      return (
        <label className="flex w-fit items-center gap-2">
          <input
            {...common}
            type="checkbox"
            className="size-4 accent-fill"
            checked={value === "true"}
            onChange={(e) => onChange(String(e.target.checked))}
          />{" "}
          {p.styling?.label || "Yes"}
        </label>
      );
    case "switch":
      return (
        <Switch.Root
          {...common}
          aria-label={p.display_name || p.name}
          checked={value === "true"}
          onCheckedChange={(on) => onChange(String(on))}
          className={cx(
            "inline-flex h-5 w-9 items-center rounded-full border border-edge bg-raised",
            "p-px data-[state=checked]:border-fill data-[state=checked]:bg-fill",
          )}
        >
          <Switch.Thumb
            className={cx(
              "size-4 rounded-full bg-muted transition-transform",
              "data-[state=checked]:translate-x-4 data-[state=checked]:bg-white",
            )}
          />
        </Switch.Root>
      );
    case "slider":
      return <Range {...props} />;
    case "multi-select":
      return <Choices {...props} />;
    case "tag-select":
      return <TagInput {...props} />;
    default:
      return (
        <Input
          {...common}
          type={p.styling?.mask_input ? "password" : p.type === "number" ? "number" : "text"}
          step="any"
          autoComplete="off"
          placeholder={placeholder}
          value={value}
          onChange={(e) => onChange(e.target.value)}
          className="max-w-xl"
        />
      );
  }
}

function Dropdown({ p, id, value, disabled, invalid, describedBy, onChange }: Props) {
  const chosen = p.options.find((o) => o.value.value === value);
  return (
    <div className="flex max-w-xl items-center gap-2">
      {chosen?.icon && <Icon src={chosen.icon} name={chosen.name} />}
      <div className="min-w-0 flex-1">
        <Select
          id={id}
          disabled={disabled}
          aria-describedby={describedBy}
          aria-invalid={invalid || undefined}
          value={value}
          onChange={(e) => onChange(e.target.value)}
        >
          {!chosen && <option value={value}>{p.styling?.placeholder ?? (value || "Choose…")}</option>}
          {p.options.map((o) => (
            <option key={o.value.value} value={o.value.value}>
              {o.name}
            </option>
          ))}
        </Select>
        {chosen?.description && <p className="mt-1 text-[13px] text-muted">{chosen.description}</p>}
      </div>
    </div>
  );
}

function Radios({ p, id, value, disabled, describedBy, onChange }: Props) {
  return (
    <Options p={p} role="radiogroup" describedBy={describedBy}>
      {(option, i) => (
        <Choice
          {...option}
          id={i === 0 ? id : undefined}
          type="radio"
          name={id}
          disabled={disabled}
          checked={option.value === value}
          onChange={() => onChange(option.value)}
        />
      )}
    </Options>
  );
}

function Choices({ p, id, value, disabled, describedBy, onChange }: Props) {
  const chosen = parseList(value) ?? [];
  const toggle = (v: string, on: boolean) => {
    const next = new Set(chosen);
    if (on) next.add(v);
    else next.delete(v);
    onChange(JSON.stringify(p.options.map((o) => o.value.value).filter((o) => next.has(o))));
  };
  return (
    <Options p={p} role="group" describedBy={describedBy}>
      {(option, i) => (
        <Choice
          {...option}
          id={i === 0 ? id : undefined}
          type="checkbox"
          disabled={disabled}
          checked={chosen.includes(option.value)}
          onChange={(e) => toggle(option.value, e.target.checked)}
        />
      )}
    </Options>
  );
}

interface Option {
  value: string;
  title: string;
  about: string;
  icon: ReactNode;
}

interface OptionsProps extends Pick<Props, "p" | "describedBy"> {
  role: "radiogroup" | "group";
  children: (option: Option, index: number) => ReactNode;
}

// Options draws a parameter's options as cards.
function Options({ p, role, describedBy, children }: OptionsProps) {
  return (
    <div
      role={role}
      aria-labelledby={`parameter-${p.name}-label`}
      aria-describedby={describedBy}
      className="grid max-w-3xl gap-2 sm:grid-cols-2"
    >
      {p.options.map(({ value: { value }, name, description, icon }, i) => (
        <Fragment key={value}>
          {children({ value, title: name, about: description, icon: icon && <Icon src={icon} name={name} /> }, i)}
        </Fragment>
      ))}
    </div>
  );
}

function TagInput({ p, id, value, disabled, invalid, describedBy, onChange }: Props) {
  const [text, setText] = useState("");
  const tags = parseList(value) ?? [];
  const add = () => {
    const more = text
      .split(",")
      .map((t) => t.trim())
      .filter((t) => t !== "" && !tags.includes(t));
    if (more.length > 0) onChange(JSON.stringify([...tags, ...more]));
    setText("");
  };
  return (
    <div
      className={cx(
        inputClass,
        "flex max-w-xl flex-wrap items-center gap-1 py-1 has-focus-visible:outline-2 has-focus-visible:outline-accent",
      )}
    >
      {tags.map((tag) => (
        <span key={tag} className="inline-flex items-center gap-1 rounded bg-raised pl-1.5 text-[13px]">
          {tag}
          <button
            type="button"
            aria-label={`Remove ${tag}`}
            disabled={disabled}
            onClick={() => onChange(JSON.stringify(tags.filter((t) => t !== tag)))}
            className="rounded p-1 hover:bg-line"
          >
            <X className="size-3" />
          </button>
        </span>
      ))}
      <input
        id={id}
        disabled={disabled}
        aria-describedby={describedBy}
        aria-invalid={invalid || undefined}
        value={text}
        placeholder={p.styling?.placeholder ?? (tags.length ? "" : "Type and press Enter")}
        onChange={(e) => setText(e.target.value)}
        onBlur={add}
        onKeyDown={(e) => {
          if (e.key === "Enter" || e.key === ",") {
            e.preventDefault();
            add();
          } else if (e.key === "Backspace" && text === "" && tags.length > 0)
            onChange(JSON.stringify(tags.slice(0, -1)));
        }}
        className="h-6 min-w-24 flex-1 bg-transparent outline-none placeholder:text-muted"
      />
    </div>
  );
}

function Range({ p, id, value, disabled, describedBy, onChange }: Props) {
  const rule = p.validations.find((v) => v.validation_min !== null || v.validation_max !== null);
  const min = rule?.validation_min ?? 0;
  const max = rule?.validation_max ?? Math.max(100, Number(value) || 0);
  return (
    <div className="flex max-w-xl items-center gap-4">
      <Slider.Root
        min={min}
        max={max}
        step={1}
        disabled={disabled}
        value={[Number(value) || min]}
        onValueChange={([n]) => onChange(String(n))}
        className="relative flex h-5 min-w-0 flex-1 touch-none items-center select-none"
      >
        <Slider.Track className="relative h-1.5 flex-1 rounded-full bg-raised">
          <Slider.Range className="absolute h-full rounded-full bg-fill" />
        </Slider.Track>
        <Slider.Thumb
          aria-label={p.display_name || p.name}
          aria-describedby={describedBy}
          className="block size-4 rounded-full border-2 border-fill bg-panel"
        />
      </Slider.Root>
      <Input
        id={id}
        type="number"
        min={min}
        max={max}
        disabled={disabled}
        value={value}
        onChange={(e) => onChange(e.target.value)}
        className="w-20!"
      />
    </div>
  );
}
