import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { QuietHours as Hours } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Field, Form, Select, TextField } from "~/components/ui/form";
import { Pending } from "~/components/ui/pending";
import { zones } from "~/lib/schedule";

// QuietHours are when the user's workspaces stop, if a template requires that on some days.
export function QuietHours() {
  const hours = useQuery(queries.quietHours());
  return (
    <Card title="Quiet hours" actions={<DocsLink to="schedules#quiet-hours">Quiet hours</DocsLink>}>
      <Pending query={hours} what="quiet hours" />
      {hours.data && <Edit key={hours.data.raw_schedule} hours={hours.data} />}
    </Card>
  );
}

function Edit({ hours }: { hours: Hours }) {
  const client = useQueryClient();
  const [time, setTime] = useState(hours.time);
  const [zone, setZone] = useState(hours.timezone);
  const put = (schedule: string) => send("PUT users/{user}/quiet-hours", { user: "me", body: { schedule } });
  const onSuccess = (next: Hours) => client.setQueryData(queries.quietHours().queryKey, next);
  const save = useMutation({
    mutationFn: () => {
      const [hour = "0", minute = "0"] = time.split(":");
      return put(`CRON_TZ=${zone} ${Number(minute)} ${Number(hour)} * * *`);
    },
    onSuccess,
  });
  const reset = useMutation({ mutationFn: () => put(""), onSuccess });
  if (!hours.user_can_set)
    return (
      <p className="text-muted">
        Quiet hours begin at {hours.time} ({hours.timezone}). This deployment sets them for all users.
      </p>
    );
  return (
    <Form
      request={save}
      submit="Save"
      done="Saved"
      cancel={
        hours.user_set && (
          <Button busy={reset.isPending} onClick={() => reset.mutate()}>
            Use the default
          </Button>
        )
      }
    >
      <p className="text-muted">
        Workspaces whose template requires a stop on some days stop when your quiet hours begin.
        {!hours.user_set && " These are the deployment's; you can set your own."}
      </p>
      <div className="grid grid-cols-[9.5rem_1fr] gap-3">
        <TextField label="Begin at" type="time" name="schedule" required value={time} onChange={setTime} />
        <Field label="Time zone">
          {(props) => (
            <Select {...props} value={zone} onChange={(e) => setZone(e.target.value)}>
              {[...new Set([zone, ...zones()])].map((z) => (
                <option key={z}>{z}</option>
              ))}
            </Select>
          )}
        </Field>
      </div>
    </Form>
  );
}
