import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { send } from "~/api/client";
import { followBuild } from "~/api/follow";
import { gone, putWorkspace, queries } from "~/api/queries";
import type { CreateWorkspaceRequest, Preset, Template, Workspace } from "~/api/types";
import { Field, Form, Select, TextField } from "~/components/form";
import { Logins, useLogins } from "~/components/logins";
import { ParameterForm, useParameters, useSubmit } from "~/components/parameters";
import { Cost } from "~/components/quota";
import { Button, Card, Empty, Icon, LinkButton, Note, Page, PendingPage } from "~/components/ui";
import { isOwner, useMe } from "~/components/user";
import { useTitle } from "~/lib/hooks";
import { pathOf, paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

export default function Create({ template: name }: { template: string }) {
  useTitle("New workspace");
  const template = useQuery(queries.template(name));
  if (gone(template.error))
    return <Empty title="Template not found" action={<LinkButton href={paths.templates}>All templates</LinkButton>} />;
  if (!template.data) return <PendingPage query={template} what="template" title="New workspace" />;
  return <NewWorkspace key={template.data.active_version_id} template={template.data} />;
}

function NewWorkspace({ template }: { template: Template }) {
  const me = useMe();
  const ref = useTemplateRef();
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const params = new URLSearchParams(useSearch());
  const version = template.active_version_id;
  const presets = useQuery(queries.presets(version));
  const users = useQuery({ ...queries.users(), enabled: isOwner(me) });
  const [name, setName] = useState(params.get("name") ?? "");
  const [owner, setOwner] = useState(me.id);
  const [preset, setPreset] = useState("");
  const chosen = presets.data?.find((p) => p.ID === preset);
  const earlier = useQuery(queries.autofill(owner, template.id)).data ?? [];
  const form = useParameters(version, owner);
  const logins = useLogins(version, owner === me.id);
  const choose = (p: Preset | undefined) => {
    setPreset(p?.ID ?? "");
    if (p) form.setAll(Object.fromEntries(p.Parameters.map(({ Name, Value }) => [Name, Value])));
  };
  // A link can fill in values: ?param.region=eu.
  useEffect(() => {
    const given = [...params]
      .filter(([key]) => key.startsWith("param."))
      .map(([key, value]): [string, string] => [key.slice(6), value]);
    if (given.length > 0) form.setAll(Object.fromEntries(given));
  }, []); // eslint-disable-line react-hooks/exhaustive-deps
  // eslint-disable-next-line react-hooks/exhaustive-deps
  useEffect(() => choose(presets.data?.find((p) => p.Default)), [presets.data]);
  const create = useMutation({
    mutationFn: () =>
      send<Workspace>("POST", `users/${owner}/workspaces`, {
        name,
        template_id: template.id,
        rich_parameter_values: form.values(),
        ...(preset ? { template_version_preset_id: preset } : {}),
      } satisfies CreateWorkspaceRequest),
    onSuccess: (w) => {
      putWorkspace(client, w);
      followBuild(client, w.latest_build);
      navigate(pathOf(w));
    },
  });
  const { submit, waiting } = useSubmit(form, () => create.mutate());
  return (
    <Page title="New workspace" subtitle={<>From {template.display_name || template.name}</>}>
      {template.deprecated && (
        <Note tone="warn" title="This template is deprecated">
          {template.deprecation_message}
        </Note>
      )}
      <Form
        request={{ ...create, mutate: submit, isPending: create.isPending || waiting }}
        submit="Create workspace"
        disabled={!form.parameters || name === "" || logins.missing}
        cancel={<LinkButton href={paths.template(ref(template))}>Cancel</LinkButton>}
        noValidate
      >
        <Card>
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField
              label="Name"
              name="name"
              required
              autoFocus
              autoComplete="off"
              spellCheck={false}
              maxLength={32}
              value={name}
              onChange={setName}
              hint="Letters, digits and hyphens. Part of the workspace's address."
            />
            {isOwner(me) && (users.data?.users.length ?? 0) > 1 && (
              <Field label="Owner">
                {(props) => (
                  <Select {...props} value={owner} onChange={(e) => setOwner(e.target.value)}>
                    {users
                      .data!.users.filter((u) => u.status !== "suspended")
                      .map((u) => (
                        <option key={u.id} value={u.id}>
                          {u.username}
                        </option>
                      ))}
                  </Select>
                )}
              </Field>
            )}
            {(presets.data?.length ?? 0) > 0 && (
              <Field label="Preset" hint={chosen?.Description || "Fills in the parameters below. You can change them."}>
                {(props) => (
                  <span className="flex items-center gap-2">
                    {chosen?.Icon && <Icon src={chosen.Icon} name={chosen.Name} />}
                    <Select
                      {...props}
                      value={preset}
                      onChange={(e) => choose(presets.data!.find((p) => p.ID === e.target.value))}
                    >
                      <option value="">None</option>
                      {presets.data!.map((p) => (
                        <option key={p.ID} value={p.ID}>
                          {p.Name}
                        </option>
                      ))}
                    </Select>
                  </span>
                )}
              </Field>
            )}
          </div>
        </Card>
        <Cost version={version} organization={template.organization_id} owner={owner} />
        <Logins of={logins} />
        {form.parameters?.length !== 0 && (
          <Card
            title={
              <span className="flex items-center gap-2">
                <Icon src={template.icon} name={template.name} /> Parameters
              </span>
            }
            actions={
              earlier.length > 0 && (
                <Button onClick={() => form.setAll(Object.fromEntries(earlier.map((p) => [p.name, p.value])))}>
                  Use earlier values
                </Button>
              )
            }
          >
            <ParameterForm form={form} />
          </Card>
        )}
      </Form>
    </Page>
  );
}
