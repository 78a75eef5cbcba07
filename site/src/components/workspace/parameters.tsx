// The form for a template's parameters. The server evaluates it for the current values: options, defaults and whole
// parameters may depend on others.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useEffectEvent, useMemo, useRef, useState } from "react";
import { send } from "~/api/client";
import type { BuildParameter, EvaluateParametersResponse, ParameterValue, PreviewParameter } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { cx } from "~/components/ui/cx";
import { ErrorNote } from "~/components/ui/error-note";
import { Icon } from "~/components/ui/icon";
import { Loading } from "~/components/ui/loading";
import { Note } from "~/components/ui/note";
import { useDebounced } from "~/lib/hooks";
import { isLocked, validate } from "~/lib/validate";
import { ParameterInput } from "./parameter-input";

const Phrases = lazy(async () => ({ default: (await import("~/components/ui/markdown")).Phrases }));

// Descriptions are Markdown.
const aboutClass = cx(
  "grid max-w-prose gap-1 text-[13px] text-muted",
  "[&_a]:underline [&_code]:font-mono [&_ol]:list-decimal [&_ol]:pl-5 [&_ul]:list-disc [&_ul]:pl-5",
);

export type Inputs = Record<string, string>;

export interface ParametersForm {
  parameters: PreviewParameter[] | undefined;
  diagnostics: EvaluateParametersResponse["diagnostics"];
  error: unknown;
  pending: boolean;
  judged: (p: PreviewParameter) => boolean; // whether the server's diagnostics are about the current value
  inputs: Inputs;
  before: Inputs; // values of the last build
  kept: ReadonlySet<string>; // parameters of the last build whose value only the workspace's owner can read
  shown: ReadonlySet<string>; // whose errors are shown: those the user touched, or all after an attempt to submit
  value: (p: PreviewParameter) => string;
  set: (name: string, value: string) => void;
  setAll: (values: Inputs) => void;
  changed: boolean; // whether a value differs from the last build's
  check: () => boolean;
  values: () => ParameterValue[];
}

// useBefore is what useParameters needs of the parameters of an existing workspace's last build.
export function useBefore(current: BuildParameter[]): { before: Inputs; kept: ReadonlySet<string> } {
  return useMemo(() => {
    const kept = new Set(current.filter((p) => p.masked && p.value === "").map((p) => p.name));
    const before = Object.fromEntries(current.filter((p) => !kept.has(p.name)).map((p) => [p.name, p.value]));
    return { before, kept };
  }, [current]);
}

// useParameters is the form of a template version for a workspace of the owner. before: the values of an existing
// workspace. kept: parameters whose value this user cannot read. The server keeps it unless the user replaces it.
export function useParameters(
  version: string | undefined,
  owner: string,
  before: Inputs = {},
  kept: ReadonlySet<string> = none,
): ParametersForm {
  const [inputs, setInputs] = useState<Inputs>({});
  const [shown, setShown] = useState<ReadonlySet<string>>(new Set());
  const rested = useDebounced(inputs, 200);
  const id = useRef(0);
  const asked = { ...before, ...rested };
  const evaluated = useQuery({
    queryKey: ["templates", "evaluate", version, owner, asked],
    queryFn: async () => {
      const form = await send("POST templateversions/{templateversion}/dynamic-parameters/evaluate", {
        templateversion: version!,
        body: { id: ++id.current, inputs: asked, owner_id: owner },
      });
      return { ...form, asked };
    },
    enabled: version !== undefined,
    placeholderData: (last) => last, // the form stays while the next one is evaluated
    staleTime: 60_000,
  });
  const parameters = useMemo(() => evaluated.data?.parameters.toSorted((a, b) => a.order - b.order), [evaluated.data]);
  const value = (p: PreviewParameter) =>
    inputs[p.name] ??
    before[p.name] ??
    (p.value.valid ? p.value.value : p.default_value.valid ? p.default_value.value : "");

  // Drop a choice that another choice has made impossible, so that the default applies. Only the form for the current
  // values can tell: an earlier one does not know the options of later choices.
  const settled = rested === inputs && !evaluated.isPlaceholderData;
  const unseen = (name: string) => kept.has(name) && !inputs[name];
  useEffect(() => {
    if (!parameters || !settled) return;
    const gone = Object.keys(inputs).filter((name) => {
      const p = parameters.find((x) => x.name === name);
      return (
        !p ||
        (p.options.length > 0 && p.type !== "list(string)" && !p.options.some((o) => o.value.value === inputs[name]))
      );
    });
    if (gone.length > 0)
      setInputs((old) => Object.fromEntries(Object.entries(old).filter(([name]) => !gone.includes(name))));
  }, [parameters, settled, inputs]);

  return {
    parameters,
    inputs,
    before,
    kept,
    shown,
    value,
    diagnostics: evaluated.data?.diagnostics ?? [],
    error: evaluated.error,
    judged: (p) => (evaluated.data?.asked[p.name] ?? "") === (inputs[p.name] ?? before[p.name] ?? ""),
    pending: !settled,
    set: (name, text) => {
      setInputs((old) => ({ ...old, [name]: text }));
      setShown((old) => new Set(old).add(name));
    },
    setAll: (values) => setInputs((old) => ({ ...old, ...values })),
    changed: (parameters ?? []).some(
      (p) =>
        inputs[p.name] !== undefined &&
        !locked(p, before, kept) &&
        !unseen(p.name) &&
        inputs[p.name] !== (before[p.name] ?? p.default_value.value),
    ),
    check: () => {
      setShown(new Set(parameters?.map((p) => p.name)));
      const stays = (p: PreviewParameter) => locked(p, before, kept) || unseen(p.name);
      const wrong = parameters?.find((p) => validate(p, value(p), before[p.name]) !== "" && !stays(p));
      if (wrong)
        document
          .getElementById(`parameter-${wrong.name}`)
          ?.querySelector<HTMLElement>("input,select,textarea,button")
          ?.focus();
      return (
        parameters !== undefined && !wrong && !(evaluated.data?.diagnostics ?? []).some((d) => d.severity === "error")
      );
    },
    values: () =>
      (parameters ?? [])
        .filter((p) => !locked(p, before, kept) && !unseen(p.name) && (!p.ephemeral || inputs[p.name] !== undefined))
        .map((p) => ({ name: p.name, value: value(p) })),
  };
}

// useSubmit runs `then` once the form is complete. It waits for an evaluation under way, unless the form changes.
export function useSubmit(form: ParametersForm, then: () => void): { submit: () => void; waiting: boolean } {
  const [submitted, setSubmitted] = useState<Inputs | null>(null);
  const ready = !form.pending && form.parameters !== undefined;
  const finish = useEffectEvent(() => {
    if (form.check()) then();
  });
  useEffect(() => {
    if (submitted === null || !(ready || form.error || submitted !== form.inputs)) return;
    setSubmitted(null);
    if (submitted === form.inputs) finish();
  }, [submitted, ready, form.error, form.inputs]);
  return { submit: () => setSubmitted(form.inputs), waiting: submitted !== null };
}

const locked = (p: PreviewParameter, before: Inputs, kept: ReadonlySet<string>) =>
  isLocked(p, before[p.name]) || (!p.mutable && kept.has(p.name));
const none: ReadonlySet<string> = new Set();

interface ParameterFormProps {
  form: ParametersForm;
  existing?: boolean; // the workspace exists
  only?: ReadonlySet<string>; // the parameters to show; all without it
}

export function ParameterForm({ form, existing, only }: ParameterFormProps) {
  if (form.error && !form.parameters) return <ErrorNote error={form.error} title="Cannot show the parameters" />;
  if (!form.parameters) return <Loading what="parameters" />;
  const asked = form.parameters.filter((p) => !only || only.has(p.name));
  const lasting = asked.filter((p) => !p.ephemeral);
  const once = asked.filter((p) => p.ephemeral);
  return (
    <div className="flex flex-col gap-5" aria-busy={form.pending}>
      {form.diagnostics.map((d, i) => (
        <Note key={i} tone={d.severity === "error" ? "bad" : "warn"} title={d.summary}>
          {d.detail}
        </Note>
      ))}
      {lasting.map((p) => (
        <Parameter key={p.name} p={p} form={form} existing={existing ?? false} />
      ))}
      {once.length > 0 && (
        <fieldset className="flex flex-col gap-5 rounded-md border border-line p-4">
          <legend className="px-1 font-medium">For this build only</legend>
          {once.map((p) => (
            <Parameter key={p.name} p={p} form={form} existing={existing ?? false} />
          ))}
        </fieldset>
      )}
    </div>
  );
}

function Parameter({ p, form, existing }: { p: PreviewParameter; form: ParametersForm; existing: boolean }) {
  const value = form.value(p);
  const fixed = locked(p, form.before, form.kept);
  const unseen = form.kept.has(p.name) && !form.inputs[p.name];
  const wrong = !fixed && !unseen && form.shown.has(p.name) ? validate(p, value, form.before[p.name]) : "";
  const told = unseen
    ? []
    : p.diagnostics.filter((d) => d.severity === "error" && form.judged(p) && (form.shown.has(p.name) || value !== ""));
  const error = wrong || told.map((d) => d.detail || d.summary).join(" ");
  const base = `parameter-${p.name}`;
  const label = p.display_name || p.name;
  return (
    <div id={base} className="grid gap-1" role="group" aria-labelledby={`${base}-label`}>
      <div id={`${base}-label`} className="flex flex-wrap items-center gap-2">
        {p.icon && <Icon src={p.icon} name={label} />}
        <label htmlFor={`${base}-input`} className="font-medium">
          {label}
        </label>
        {p.required && <span className="text-[13px] text-muted">required</span>}
        {!p.mutable && <Badge title="Set once, when the workspace is created">cannot be changed later</Badge>}
        {p.ephemeral && <Badge title="Applies to one build only">this build only</Badge>}
      </div>
      {p.description && (
        <div id={`${base}-about`} className={aboutClass}>
          <Suspense fallback={<p>{p.description}</p>}>
            <Phrases text={p.description} />
          </Suspense>
        </div>
      )}
      <ParameterInput
        p={p}
        id={`${base}-input`}
        value={value}
        disabled={fixed || p.styling?.disabled === true}
        onChange={(v) => form.set(p.name, v)}
        describedBy={cx(p.description && `${base}-about`, `${base}-error`)}
        invalid={error !== ""}
      />
      <div id={`${base}-error`} className="text-[13px]" aria-live="polite">
        {error && <span className="text-bad">{error}</span>}
        {fixed && existing && <span className="text-muted">Set when the workspace was created.</span>}
        {unseen && !fixed && (
          <span className="text-muted">Only the owner can see the value. Leave this empty to keep it.</span>
        )}
        {p.diagnostics
          .filter((d) => d.severity === "warning")
          .map((d, i) => (
            <span key={i} className="block text-warn">
              {d.summary} {d.detail}
            </span>
          ))}
      </div>
    </div>
  );
}
