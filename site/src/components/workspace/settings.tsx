// A workspace's settings: name, autostart, autostop, parameters and states.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { useLocation } from "wouter";
import { asked, createBuild, reread } from "~/api/actions";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { BuildParameter, Workspace } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { DocsLink } from "~/components/ui/docs-link";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox, Field, Form, Select, TextField } from "~/components/ui/form";
import { Note } from "~/components/ui/note";
import { Pending } from "~/components/ui/pending";
import { isBusy } from "~/components/ui/status";
import { until } from "~/lib/format";
import { paths } from "~/lib/path";
import { dayNames, describeSchedule, formatSchedule, parseSchedule, zones } from "~/lib/schedule";
import { ActionDialog } from "./actions";
import { ParameterForm, useBefore, useParameters, useSubmit } from "./parameters";
import { useExtend } from "./stopping";

const WorkspaceStates = lazy(() => import("./states"));

export function WorkspaceSettings({ workspace: w }: { workspace: Workspace }) {
  return (
    <>
      <Parameters workspace={w} />
      <div className="grid gap-4 lg:grid-cols-2">
        <Autostart workspace={w} />
        <Autostop workspace={w} />
        <General workspace={w} />
      </div>
      {w.permissions.restore_state && (
        <Suspense>
          <WorkspaceStates workspace={w} />
        </Suspense>
      )}
    </>
  );
}

function Autostart({ workspace: w }: { workspace: Workspace }) {
  const known = w.autostart_schedule ? parseSchedule(w.autostart_schedule) : undefined;
  const [on, setOn] = useState(Boolean(w.autostart_schedule));
  const [form, setForm] = useState(
    known ?? {
      zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
      hour: 9,
      minute: 0,
      days: [1, 2, 3, 4, 5],
    },
  );
  const change = useMutation({
    mutationFn: () =>
      send("PUT workspaces/{workspace}/autostart", {
        workspace: w.id,
        body: { schedule: on ? formatSchedule(form) : "" },
      }),
  });
  const time = `${String(form.hour).padStart(2, "0")}:${String(form.minute).padStart(2, "0")}`;
  return (
    <Card title="Autostart" actions={<DocsLink to="schedules">Schedules</DocsLink>}>
      <Form request={change} submit="Save" done="Saved" disabled={on && form.days.length === 0}>
        <p className="text-muted">
          {describeSchedule(w.autostart_schedule)}
          {w.next_start_at && `, next ${until(w.next_start_at)}`}.
          {w.dormant_at && w.autostart_schedule && " It does not start while it is dormant."}
        </p>
        <Checkbox label="Start on a schedule" checked={on} onChange={setOn} />
        {on && (
          <>
            <fieldset className="flex flex-wrap gap-1">
              <legend className="mb-1 font-medium">Days</legend>
              {dayNames.map((name, day) => (
                <label
                  key={name}
                  className={cx(
                    "flex h-7 items-center rounded-md border border-edge px-2 text-[13px] select-none",
                    "has-checked:border-accent has-checked:bg-accent-soft has-checked:text-accent",
                    "has-focus-visible:outline-2",
                  )}
                >
                  <input
                    type="checkbox"
                    className="sr-only"
                    checked={form.days.includes(day)}
                    onChange={(e) =>
                      setForm({
                        ...form,
                        days: e.target.checked ? [...form.days, day].sort() : form.days.filter((d) => d !== day),
                      })
                    }
                  />
                  {name}
                </label>
              ))}
            </fieldset>
            <div className="grid grid-cols-[9.5rem_1fr] gap-3">
              <TextField
                label="Time"
                type="time"
                required
                value={time}
                onChange={(t) => {
                  const [hour = 0, minute = 0] = t.split(":").map(Number);
                  setForm({ ...form, hour, minute });
                }}
              />
              <Field label="Time zone">
                {(props) => (
                  <Select {...props} value={form.zone} onChange={(e) => setForm({ ...form, zone: e.target.value })}>
                    {[...new Set([form.zone, ...zones()])].map((z) => (
                      <option key={z}>{z}</option>
                    ))}
                  </Select>
                )}
              </Field>
            </div>
          </>
        )}
      </Form>
    </Card>
  );
}

function Autostop({ workspace: w }: { workspace: Workspace }) {
  const [hours, setHours] = useState(w.ttl_ms ? String(w.ttl_ms / 3_600_000) : "");
  const change = useMutation({
    mutationFn: () =>
      send("PUT workspaces/{workspace}/ttl", {
        workspace: w.id,
        body: { ttl_ms: hours === "" || Number(hours) === 0 ? null : Math.round(Number(hours) * 3_600_000) },
      }),
  });
  const extend = useExtend(w);
  const { deadline, status } = w.latest_build;
  const limited = status === "running" && !w.dormant_at && deadline && !deadline.startsWith("0001-");
  return (
    <Card title="Autostop">
      <Form request={change} submit="Save" done="Saved">
        {limited && (
          <p className="flex flex-wrap items-center gap-2 text-muted">
            Stops {until(deadline)}.{" "}
            <Button small busy={extend.isPending} onClick={() => extend.mutate()}>
              Extend by 1 hour
            </Button>
          </p>
        )}
        <ErrorNote error={extend.error} />
        <TextField
          label="Stop after (hours)"
          name="ttl_ms"
          hint="Leave empty to keep the workspace running. Takes effect at the next start."
          type="number"
          min="0"
          max="720"
          step="0.5"
          value={hours}
          onChange={setHours}
        />
      </Form>
    </Card>
  );
}

function General({ workspace: w }: { workspace: Workspace }) {
  const [, navigate] = useLocation();
  const [name, setName] = useState(w.name);
  const [updates, setUpdates] = useState(w.automatic_updates);
  const change = useMutation({
    mutationFn: async () => {
      if (updates !== w.automatic_updates)
        await send("PUT workspaces/{workspace}/autoupdates", { workspace: w.id, body: { automatic_updates: updates } });
      if (name !== w.name) await send("PATCH workspaces/{workspace}", { workspace: w.id, body: { name } });
    },
    onSuccess: () =>
      name !== w.name && navigate(`${paths.workspace(w.owner_name, name)}?tab=settings`, { replace: true }),
  });
  return (
    <Card title="General">
      <Form request={change} submit="Save" done="Saved">
        <TextField
          label="Name"
          name="name"
          required
          value={name}
          onChange={setName}
          hint="Renaming changes the workspace's addresses and, at the next build, resources named after it."
        />
        <Checkbox
          label="Update to the active version at every start"
          checked={updates === "always"}
          onChange={(on) => setUpdates(on ? "always" : "never")}
        />
      </Form>
    </Card>
  );
}

function Parameters({ workspace: w }: { workspace: Workspace }) {
  const current = useQuery(queries.buildParameters(w.latest_build.id));
  if (!current.data) return <Pending query={current} what="parameters" />;
  return <ParameterCard key={w.latest_build.id} workspace={w} current={current.data} />;
}

function ParameterCard({ workspace: w, current }: { workspace: Workspace; current: BuildParameter[] }) {
  const [, navigate] = useLocation();
  const { before, kept } = useBefore(current);
  const form = useParameters(w.latest_build.template_version_id, w.owner_id, before, kept);
  const client = useQueryClient();
  const running = w.latest_build.status === "running";
  const change = useMutation({
    mutationFn: () =>
      createBuild(
        w.id,
        { transition: "start", rich_parameter_values: form.values(), ...asked },
        running ? "restart" : "builds",
      ),
    onSuccess: async () => {
      await reread(client, w.id);
      navigate(paths.workspace(w.owner_name, w.name));
    },
  });
  const [asking, ask] = useState(false);
  const { submit, waiting } = useSubmit(form, () => (running ? ask(true) : change.mutate()));
  if (form.parameters?.length === 0)
    return (
      <Card title="Parameters">
        <p className="text-muted">This template has no parameters.</p>
      </Card>
    );
  return (
    <Card title="Parameters">
      <Form
        request={{ ...change, mutate: submit, isPending: change.isPending || waiting }}
        submit={running ? "Save and restart" : "Save and start"}
        disabled={!form.changed || isBusy(w.latest_build.status) || w.dormant_at !== null}
      >
        <ParameterForm form={form} existing />
        {w.outdated && <Note tone="accent">These are the parameters of the workspace's current version.</Note>}
        {w.dormant_at ? (
          <p className="text-muted">Wake the workspace to change its parameters.</p>
        ) : (
          form.parameters && !form.changed && <p className="text-muted">Change a value to save it.</p>
        )}
      </Form>
      {asking && (
        <Suspense>
          <ActionDialog name={w.name} action="restart" onConfirm={change.mutateAsync} onClose={() => ask(false)} />
        </Suspense>
      )}
    </Card>
  );
}
