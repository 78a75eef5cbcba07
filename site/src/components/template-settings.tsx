import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { send } from "~/api/client";
import type { Template, UpdateTemplateRequest } from "~/api/types";
import { paths } from "~/lib/path";
import { Checkbox, Form, TextField, useFields } from "./form";
import { Card } from "./ui";

const hour = 3_600_000; // ms

const hours = (ms: number) => (ms ? String(ms / hour) : "");

export function TemplateSettings({ template: t }: { template: Template }) {
  const [, navigate] = useLocation();
  const { values, field } = useFields({
    name: t.name,
    display_name: t.display_name,
    description: t.description,
    icon: t.icon,
    deprecation_message: t.deprecation_message,
    default_ttl_ms: hours(t.default_ttl_ms),
    activity_bump_ms: hours(t.activity_bump_ms),
  });
  const [rules, setRules] = useState({
    allow_user_autostart: t.allow_user_autostart,
    allow_user_autostop: t.allow_user_autostop,
    allow_user_cancel_workspace_jobs: t.allow_user_cancel_workspace_jobs,
    require_active_version: t.require_active_version,
  });
  const save = useMutation({
    mutationFn: () =>
      send<Template>("PATCH", `templates/${t.id}`, {
        ...values,
        ...rules,
        default_ttl_ms: Number(values.default_ttl_ms) * hour,
        activity_bump_ms: Number(values.activity_bump_ms) * hour,
      } satisfies UpdateTemplateRequest),
    onSuccess: () => values.name !== t.name && navigate(`${paths.template(values.name)}/settings`, { replace: true }),
  });
  const rule = (key: keyof typeof rules, label: string) => (
    <Checkbox label={label} checked={rules[key]} onChange={(on) => setRules((old) => ({ ...old, [key]: on }))} />
  );
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
          </div>
        </Card>
        <Card title="Workspaces">
          <div className="flex flex-col gap-4">
            <TextField
              label="Autostop after (hours)"
              type="number"
              min="0"
              step="0.5"
              hint="Leave empty to turn autostop off by default."
              {...field("default_ttl_ms")}
            />
            <TextField
              label="Extend on activity (hours)"
              type="number"
              min="0"
              step="0.5"
              {...field("activity_bump_ms")}
            />
            {rule("allow_user_autostart", "Let users change autostart")}
            {rule("allow_user_autostop", "Let users change autostop")}
            {rule("allow_user_cancel_workspace_jobs", "Let users cancel builds")}
            {rule("require_active_version", "Always update at start")}
          </div>
        </Card>
      </div>
    </Form>
  );
}
