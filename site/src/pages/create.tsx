import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useEffectEvent, useRef, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { post } from "~/api/client";
import { followBuild } from "~/api/follow";
import { lists } from "~/api/lists";
import { gone, putWorkspace, queries } from "~/api/queries";
import type { Preset, Template } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { Form, TextField } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { PendingPage } from "~/components/ui/pending";
import { Suggesting } from "~/components/ui/suggesting";
import { useMe } from "~/components/ui/user";
import { Logins, useLogins } from "~/components/workspace/logins";
import { ParameterForm, useParameters, useSubmit } from "~/components/workspace/parameters";
import { Presets } from "~/components/workspace/presets";
import { Cost } from "~/components/workspace/quota";
import { freeName, nameFrom } from "~/lib/free-name";
import { useDebounced, useTitle } from "~/lib/hooks";
import { suggestedName } from "~/lib/open-link";
import { pathOf, paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

export default function Create({ template: name, organization }: { template: string; organization?: string }) {
  useTitle("New workspace");
  const template = useQuery(queries.template(name, organization));
  if (gone(template.error))
    return (
      <Empty page title="Template not found" action={<LinkButton href={paths.templates}>All templates</LinkButton>} />
    );
  if (!template.data) return <PendingPage query={template} what="template" title="New workspace" />;
  return <NewWorkspace key={template.data.active_version_id} template={template.data} />;
}

// useOwner is whose workspace it will be: the user's own, unless they may create workspaces for other members of the
// organization and name one. id stays the last one while a name is typed; known reports whether it is the named one's.
function useOwner(organization: string) {
  const me = useMe();
  const [name, setName] = useState(me.username);
  const [id, setID] = useState(me.id);
  const rested = useDebounced(name.trim(), 200);
  const others = useQuery(lists.owners(organization, ""));
  const found = useQuery({ ...lists.owners(organization, rested), placeholderData: keepPreviousData });
  const is = (username: string) => username.toLowerCase() === rested.toLowerCase();
  const named = is(me.username) ? me.id : found.data?.find((u) => is(u.username))?.id;
  if (named && named !== id) setID(named);
  return {
    id,
    name: named ? rested : me.username,
    known: named !== undefined && rested === name.trim(),
    missing: !named && found.isSuccess && !found.isPlaceholderData && rested === name.trim(),
    several: others.data?.some((u) => u.id !== me.id) ?? false,
    field: {
      value: name,
      onChange: setName,
      offers: (found.data ?? []).map((u) => ({ value: u.username, about: u.name })),
    },
  };
}

// useFreeName suggests a name for a workspace of a template: one that its owner has no workspace with. It is "" until
// the server has answered.
function useFreeName(template: string, owner: string, wanted: boolean): string {
  const base = nameFrom(template);
  const stem = base.slice(0, 29).replace(/-+$/, ""); // of names with a number, too
  const found = useQuery({ ...lists.named(owner, stem), enabled: wanted && base !== "" });
  if (!found.data || base === "") return "";
  return freeName(
    base,
    found.data.workspaces.map((w) => w.name),
  );
}

export function NewWorkspace({ template }: { template: Template }) {
  const me = useMe();
  const ref = useTemplateRef();
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const params = new URLSearchParams(useSearch());
  const version = template.active_version_id;
  const presets = useQuery(queries.presets(version));
  // A link with ?mode=auto asks only whether to create the workspace. It never creates one without a click: anyone can
  // have made the link, and a parameter can name a repository whose code runs.
  const auto = params.get("mode") === "auto";
  const [unanswered, setUnanswered] = useState(auto);
  const whose = useOwner(template.organization_id);
  const owner = whose.id;
  const [typed, setName] = useState<string | undefined>(
    () => params.get("name") ?? (auto ? suggestedName(template.name) : undefined),
  );
  const suggestion = useFreeName(template.name, whose.name, typed === undefined);
  const name = typed ?? suggestion;
  const same = useQuery({ ...queries.workspace("me", name), enabled: unanswered, retry: false });
  // A suggestion that arrives while the field has the focus is selected, so that typing replaces it.
  const input = useRef<HTMLInputElement>(null);
  const select = useEffectEvent(() => {
    if (typed === undefined && document.activeElement === input.current) input.current?.select();
  });
  useEffect(() => select(), [suggestion]);
  const [preset, setPreset] = useState("");
  const earlier = useQuery(queries.autofill(owner, template.id)).data ?? [];
  const form = useParameters(version, owner);
  const logins = useLogins(version, owner === me.id);
  const choose = (p: Preset | undefined) => {
    setPreset(p?.ID ?? "");
    if (p) form.setAll(Object.fromEntries(p.Parameters.map(({ Name, Value }) => [Name, Value])));
  };
  // A link can fill in values: ?param.region=eu.
  const given = [...params]
    .filter(([key]) => key.startsWith("param."))
    .map(([key, value]): [string, string] => [key.slice(6), value]);
  const fillIn = useEffectEvent(() => {
    if (given.length > 0) form.setAll(Object.fromEntries(given));
  });
  useEffect(() => fillIn(), []);
  const chooseDefault = useEffectEvent((all: Preset[] | undefined) => choose(all?.find((p) => p.Default)));
  useEffect(() => chooseDefault(presets.data), [presets.data]);
  const create = useMutation({
    mutationFn: () =>
      post("users/{user}/workspaces", {
        user: owner,
        body: {
          name,
          template_id: template.id,
          rich_parameter_values: form.values(),
          ...(preset ? { template_version_preset_id: preset } : {}),
        },
      }),
    onSuccess: (w) => {
      putWorkspace(client, w);
      followBuild(client, w.latest_build);
      navigate(pathOf(w));
    },
  });
  const { submit, waiting } = useSubmit(form, () => {
    setName(name); // it is taken from now on
    create.mutate();
  });
  const ready = form.parameters && !form.pending && presets.data && logins.query.data && !logins.missing;
  return (
    <Page narrow title="New workspace" subtitle={<>From {template.display_name || template.name}</>}>
      {unanswered && same.data && same.data.template_id === template.id && (
        <Note title={`You have a workspace named ${name}`} tone="accent">
          The link asks for one of this template.{" "}
          <Link className="underline" href={pathOf(same.data)}>{`Open ${name}`}</Link>, or choose another name below.
        </Note>
      )}
      {unanswered && ready && gone(same.error) && (
        <Confirm
          title={`Create the workspace ${name}?`}
          action="Create workspace"
          onConfirm={async () => submit()}
          onClose={() => setUnanswered(false)}
        >
          A link asks for it. Its programs run as you, with your accounts and secrets: go on only if you trust the link.
          {given.length > 0 && (
            <ul className="mt-2 flex list-disc flex-col gap-1 pl-5">
              {given.map(([key, value]) => (
                <li key={key} className="break-all">
                  {key}: <code>{value}</code>
                </li>
              ))}
            </ul>
          )}
        </Confirm>
      )}
      {template.deprecated && (
        <Note tone="warn" title="This template is deprecated">
          {template.deprecation_message}
        </Note>
      )}
      <Form
        request={{ ...create, mutate: submit, isPending: create.isPending || waiting }}
        submit="Create workspace"
        disabled={!form.parameters || name === "" || logins.missing || !whose.known}
        cancel={<LinkButton href={paths.template(ref(template))}>Cancel</LinkButton>}
        noValidate
      >
        <Card>
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField
              label="Name"
              name="name"
              required
              ref={input}
              autoFocus
              autoComplete="off"
              spellCheck={false}
              maxLength={32}
              value={name}
              onChange={(text) => {
                setUnanswered(false);
                setName(text);
              }}
              hint="Letters, digits and hyphens. Part of the workspace's address."
            />
            {whose.several && (
              <Suggesting
                label="Owner"
                required
                hint={
                  whose.missing
                    ? "No active member of the organization has this username."
                    : "A username, of a member of the organization."
                }
                {...whose.field}
              />
            )}
            {presets.data && presets.data.length > 0 && (
              <Presets presets={presets.data} parameters={form.parameters ?? []} value={preset} onChange={choose} />
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
