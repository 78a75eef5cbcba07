// The presets of a template, as cards: each with what it sets.
import type { Preset, PreviewParameter } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Choice } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";

interface PresetsProps {
  presets: Preset[];
  parameters: PreviewParameter[]; // for their names and options
  value: string; // the id of one, or "" for none
  onChange: (preset: Preset | undefined) => void;
}

export function Presets({ presets, parameters, value, onChange }: PresetsProps) {
  return (
    <fieldset className="flex min-w-0 flex-col gap-1 sm:col-span-2">
      <legend className="mb-1 font-medium">Preset</legend>
      <div className="grid gap-2 sm:grid-cols-2">
        {presets.map((p) => (
          <Choice
            key={p.ID}
            type="radio"
            name="preset"
            title={p.Name}
            mark={p.Default && <Badge>default</Badge>}
            about={p.Description}
            icon={<Icon src={p.Icon} name={p.Name} className="size-6" />}
            checked={value === p.ID}
            onChange={() => onChange(p)}
          >
            <Values of={p} parameters={parameters} />
          </Choice>
        ))}
        <Choice
          type="radio"
          name="preset"
          title="None"
          about="Choose all parameters below."
          checked={value === ""}
          onChange={() => onChange(undefined)}
        />
      </div>
      <p className="text-[13px] text-muted">A preset fills in parameters. You can change them below.</p>
    </fieldset>
  );
}

// Values are the parameters that a preset sets, by the names that the form below has for them.
const Values = ({ of, parameters }: { of: Preset; parameters: PreviewParameter[] }) => (
  <span className="mt-1 flex flex-wrap gap-x-3 text-[13px]">
    {of.Parameters.map(({ Name, Value }) => {
      const p = parameters.find((known) => known.name === Name);
      const option = p?.options.find((o) => o.value.value === Value);
      return (
        <span key={Name} className="min-w-0 break-words">
          <span className="text-muted">{p?.display_name || Name}</span> {option?.name || Value || "empty"}
        </span>
      );
    })}
  </span>
);
