import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { send } from "~/api/client";
import type { Template, UpdateTemplateRequest } from "~/api/types";
import { Button, Card, ErrorNote, fieldError, TextField } from "./ui";
import { useLocation } from "wouter";
import { paths } from "~/lib/path";

const hour = 3_600_000; // ms

export function TemplateSettings({ template: t }: { template: Template }) {
  const [, navigate] = useLocation();
  const [form, setForm] = useState({
    name: t.name,
    display_name: t.display_name,
    description: t.description,
    icon: t.icon,
    deprecation_message: t.deprecation_message,
    ttl: t.default_ttl_ms ? String(t.default_ttl_ms / hour) : "",
    bump: t.activity_bump_ms ? String(t.activity_bump_ms / hour) : "",
    allow_user_autostart: t.allow_user_autostart,
    allow_user_autostop: t.allow_user_autostop,
    allow_user_cancel_workspace_jobs: t.allow_user_cancel_workspace_jobs,
    require_active_version: t.require_active_version,
  });
  const set =
    <K extends keyof typeof form>(key: K) =>
    (value: (typeof form)[K]) =>
      setForm((f) => ({ ...f, [key]: value }));
  const save = useMutation({
    mutationFn: () => {
      const { ttl, bump, ...rest } = form;
      return send<Template>("PATCH", `templates/${t.id}`, {
        ...rest,
        default_ttl_ms: Number(ttl) * hour,
        activity_bump_ms: Number(bump) * hour,
      } satisfies UpdateTemplateRequest);
    },
    onSuccess: () => form.name !== t.name && navigate(`${paths.template(form.name)}/settings`, { replace: true }),
  });
  const error = (field: string) => fieldError(save.error, field);
  const check = (
    key: "allow_user_autostart" | "allow_user_autostop" | "allow_user_cancel_workspace_jobs" | "require_active_version",
    label: ReactNode,
  ) => (
    <label className="flex items-center gap-2">
      <input type="checkbox" className="accent-fill" checked={form[key]} onChange={(e) => set(key)(e.target.checked)} />{" "}
      {label}
    </label>
  );
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(e) => {
        e.preventDefault();
        save.mutate();
      }}
    >
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Card title="General">
          <div className="flex flex-col gap-4">
            <TextField
              label="Name"
              required
              value={form.name}
              onChange={set("name")}
              error={error("name")}
              hint="Used in addresses and on the command line."
            />
            <TextField
              label="Display name"
              value={form.display_name}
              onChange={set("display_name")}
              error={error("display_name")}
            />
            <TextField
              label="Description"
              value={form.description}
              onChange={set("description")}
              error={error("description")}
            />
            <TextField
              label="Icon"
              value={form.icon}
              onChange={set("icon")}
              error={error("icon")}
              placeholder="/icon/terminal.svg"
              hint="The path of a picture on this server, such as /icon/docker.svg or /emojis/1f680.png."
            />
            <TextField
              label="Deprecation"
              value={form.deprecation_message}
              onChange={set("deprecation_message")}
              hint="Blocks new workspaces and shows this message instead."
            />
          </div>
        </Card>
        <Card title="Workspaces">
          <div className="flex flex-col gap-4">
            <TextField
              label="Stop after (hours)"
              type="number"
              min="0"
              step="0.5"
              value={form.ttl}
              onChange={set("ttl")}
              error={error("default_ttl_ms")}
              hint="Leave empty to keep workspaces running until someone stops them."
            />
            <TextField
              label="Extend on activity (hours)"
              type="number"
              min="0"
              step="0.5"
              value={form.bump}
              onChange={set("bump")}
              error={error("activity_bump_ms")}
            />
            {check("allow_user_autostart", "Let users change autostart")}
            {check("allow_user_autostop", "Let users change autostop")}
            {check("allow_user_cancel_workspace_jobs", "Let users cancel builds")}
            {check("require_active_version", "Always update on start")}
          </div>
        </Card>
      </div>
      <ErrorNote error={save.error} />
      <div className="flex items-center gap-3">
        <Button type="submit" look="primary" busy={save.isPending}>
          Save
        </Button>
        <span role="status" className="text-ok">
          {save.isSuccess ? "Saved" : ""}
        </span>
      </div>
    </form>
  );
}
