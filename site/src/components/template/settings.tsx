import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { send } from "~/api/client";
import type { AppShare, Template } from "~/api/types";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { Checkbox, Field, Form, Select, TextField, useFields } from "~/components/ui/form";
import { paths } from "~/lib/path";
import { levels } from "~/lib/share-levels";
import { useTemplateRef } from "~/lib/template-ref";

const hour = 3_600_000; // ms
const day = 24 * hour;

const text = (ms: number, unit: number) => (ms ? String(ms / unit) : "");
const millis = (value: string, unit: number) => Math.round(Number(value) * unit);

const week = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

export function TemplateSettings({ template: t }: { template: Template }) {
  const [, navigate] = useLocation();
  const ref = useTemplateRef();
  const { values, field } = useFields({
    name: t.name,
    display_name: t.display_name,
    description: t.description,
    icon: t.icon,
    deprecation_message: t.deprecation_message,
  });
  const { values: times, field: time } = useFields({
    default_ttl_ms: text(t.default_ttl_ms, hour),
    max_ttl_ms: text(t.max_ttl_ms, hour),
    activity_bump_ms: text(t.activity_bump_ms, hour),
    time_til_autostop_notify_ms: text(t.time_til_autostop_notify_ms, hour / 60),
    failure_ttl_ms: text(t.failure_ttl_ms, hour),
    time_til_dormant_ms: text(t.time_til_dormant_ms, day),
    time_til_dormant_autodelete_ms: text(t.time_til_dormant_autodelete_ms, day),
    weeks: String(t.autostop_requirement.weeks),
  });
  const [starts, setStarts] = useState(t.autostart_requirement.days_of_week);
  const [stops, setStops] = useState(t.autostop_requirement.days_of_week);
  const [rules, setRules] = useState({
    allow_user_autostart: t.allow_user_autostart,
    allow_user_autostop: t.allow_user_autostop,
    allow_user_cancel_workspace_jobs: t.allow_user_cancel_workspace_jobs,
    require_active_version: t.require_active_version,
    allow_replacing_resources: t.allow_replacing_resources,
  });
  const { values: identity, field: identityField } = useFields({
    identity_audiences: t.identity_audiences.join(" "),
    identity_build_audience: t.identity_build_audience,
  });
  const [ceiling, setCeiling] = useState(t.max_port_share_level);
  const [spare, setSpare] = useState({ update_workspace_last_used_at: false, update_workspace_dormant_at: false });
  const save = useMutation({
    mutationFn: () =>
      send("PATCH templates/{template}", {
        template: t.id,
        body: {
          ...values,
          ...rules,
          ...spare,
          max_port_share_level: ceiling,
          identity_audiences: identity.identity_audiences.split(/\s+/).filter(Boolean),
          identity_build_audience: identity.identity_build_audience,
          default_ttl_ms: millis(times.default_ttl_ms, hour),
          max_ttl_ms: millis(times.max_ttl_ms, hour),
          activity_bump_ms: millis(times.activity_bump_ms, hour),
          time_til_autostop_notify_ms: millis(times.time_til_autostop_notify_ms, hour / 60),
          failure_ttl_ms: millis(times.failure_ttl_ms, hour),
          time_til_dormant_ms: millis(times.time_til_dormant_ms, day),
          time_til_dormant_autodelete_ms: millis(times.time_til_dormant_autodelete_ms, day),
          autostart_requirement: { days_of_week: starts },
          autostop_requirement: { days_of_week: stops, weeks: Number(times.weeks) || 1 },
        },
      }),
    onSuccess: () =>
      values.name !== t.name &&
      navigate(`${paths.template(ref({ ...t, name: values.name }))}/settings`, { replace: true }),
  });
  const rule = (key: keyof typeof rules, label: string) => (
    <Checkbox label={label} checked={rules[key]} onChange={(on) => setRules((old) => ({ ...old, [key]: on }))} />
  );
  const number = { type: "number", min: "0", step: "any" };
  return (
    <Form request={save} submit="Save" done="Saved">
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Card title="General">
          <div className="flex flex-col gap-4">
            <TextField label="Name" required hint="Used in addresses and on the command line." {...field("name")} />
            <TextField label="Display name" {...field("display_name")} />
            <TextField label="Description" {...field("description")} />
            <TextField
              label="Icon"
              placeholder="/icon/terminal.svg"
              hint="The path of a picture on this server, such as /icon/docker.svg or /emojis/1f680.png."
              {...field("icon")}
            />
            <TextField
              label="Deprecation message"
              hint="Blocks new workspaces and shows this message instead."
              {...field("deprecation_message")}
            />
            {rule("allow_user_cancel_workspace_jobs", "Let users cancel builds")}
            {rule("require_active_version", "Always update at start")}
            {rule("allow_replacing_resources", "Let starts and stops replace disks without a question")}
            <Field
              name="max_port_share_level"
              label="Share ports and apps with at most"
              hint={
                ceiling === t.max_port_share_level
                  ? "Owners of workspaces decide up to this level."
                  : "Ports that are shared above this level are no longer shared, and open requests to them end."
              }
            >
              {(props) => (
                <Select {...props} value={ceiling} onChange={(e) => setCeiling(e.target.value as AppShare)}>
                  {levels.map((l) => (
                    <option key={l.level} value={l.level}>
                      {l.who}
                    </option>
                  ))}
                </Select>
              )}
            </Field>
          </div>
        </Card>
        <Card title="Schedule">
          <div className="flex flex-col gap-4">
            <TextField
              label="Autostop after (hours)"
              hint="Leave empty to turn autostop off by default."
              {...number}
              {...time("default_ttl_ms")}
            />
            <TextField
              label="Maximum lifetime (hours)"
              hint="Workspaces stop this long after a start at the latest. Leave empty for no maximum."
              {...number}
              {...time("max_ttl_ms")}
            />
            <TextField
              label="Extend on activity (hours)"
              hint="A workspace in use runs at least this much longer."
              {...number}
              {...time("activity_bump_ms")}
            />
            <TextField label="Notify before autostop (minutes)" {...number} {...time("time_til_autostop_notify_ms")} />
            {rule("allow_user_autostop", "Let users change autostop")}
            {rule("allow_user_autostart", "Let users change autostart")}
            <Days label="Allow autostart on" days={starts} onChange={setStarts} />
            <Days
              label="Require a stop on"
              hint="Running workspaces stop when their owner's quiet hours begin."
              days={stops}
              onChange={setStops}
            />
            {stops.length > 0 && (
              <TextField label="Every how many weeks" type="number" min="1" max="16" {...time("weeks")} />
            )}
          </div>
        </Card>
        <Card title="Workload identity">
          <div className="flex flex-col gap-4">
            <TextField
              label="Audiences of workspaces"
              placeholder="sts.amazonaws.com https://vault.example.com"
              hint="Separated by spaces. Workspaces get ID tokens for these clouds and vaults, and for no others."
              {...identityField("identity_audiences")}
            />
            <TextField
              label="Audience of builds"
              hint="Each build gets an ID token for it, for Terraform's providers. Leave empty for no token."
              {...identityField("identity_build_audience")}
            />
          </div>
        </Card>
        <Card title="Clean-up">
          <div className="flex flex-col gap-4">
            <TextField
              label="Stop after a failed start (hours)"
              hint="Leave empty to keep what a failed start has created."
              {...number}
              {...time("failure_ttl_ms")}
            />
            <TextField
              label="Dormant after (days without use)"
              hint="Dormant workspaces are stopped until their owners wake them. Leave empty for never."
              {...number}
              {...time("time_til_dormant_ms")}
            />
            {times.time_til_dormant_ms !== text(t.time_til_dormant_ms, day) && (
              <Checkbox
                label="Count all workspaces as used now"
                checked={spare.update_workspace_last_used_at}
                onChange={(on) => setSpare((old) => ({ ...old, update_workspace_last_used_at: on }))}
              />
            )}
            <TextField
              label="Delete after (days dormant)"
              hint="Deletes the workspace with its files. Leave empty to keep dormant workspaces."
              {...number}
              {...time("time_til_dormant_autodelete_ms")}
            />
            {times.time_til_dormant_autodelete_ms !== text(t.time_til_dormant_autodelete_ms, day) && (
              <Checkbox
                label="Count dormant workspaces as dormant since now"
                checked={spare.update_workspace_dormant_at}
                onChange={(on) => setSpare((old) => ({ ...old, update_workspace_dormant_at: on }))}
              />
            )}
          </div>
        </Card>
      </div>
    </Form>
  );
}

interface DaysProps {
  label: string;
  hint?: string;
  days: string[];
  onChange: (days: string[]) => void;
}

// Days chooses days of the week.
function Days({ label, hint, days, onChange }: DaysProps) {
  return (
    <fieldset className="flex flex-wrap gap-1">
      <legend className="mb-1 font-medium">{label}</legend>
      {week.map((name) => (
        <label
          key={name}
          className={cx(
            "flex h-7 items-center rounded-md border border-edge px-2 text-[13px] capitalize select-none",
            "has-checked:border-accent has-checked:bg-accent-soft has-checked:text-accent",
            "has-focus-visible:outline-2",
          )}
        >
          <input
            type="checkbox"
            className="sr-only"
            checked={days.includes(name)}
            onChange={(e) => onChange(week.filter((d) => (d === name ? e.target.checked : days.includes(d))))}
          />
          {name.slice(0, 3)}
        </label>
      ))}
      {hint && <p className="w-full text-[13px] text-muted">{hint}</p>}
    </fieldset>
  );
}
