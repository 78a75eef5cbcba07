import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation, useSearch } from "wouter";
import { post, send } from "~/api/client";
import { queries } from "~/api/queries";
import { activateVersion, createVersion, reimport } from "~/api/templates";
import type { ReadmeMetadata, Template, TemplateVersion, VariableValue } from "~/api/types";
import { ImportResult } from "~/components/template/import-result";
import { FolderInput, type Source, StarterChoice } from "~/components/template/upload";
import { VariablesForm } from "~/components/template/variables-form";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Field, Form, Select, TextField } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending, PendingPage } from "~/components/ui/pending";
import { TagsInput, parseTags } from "~/components/ui/tags-input";
import { freeName, nameFrom } from "~/lib/free-name";
import { useTitle } from "~/lib/hooks";
import { importing, paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

// A new template or, with ?template=, a new version of one. The address names the version being imported, so a reload
// resumes it.
export default function NewTemplate() {
  const params = new URLSearchParams(useSearch());
  const existing = params.get("template");
  const version = params.get("version");
  useTitle(existing ? "New version" : "New template");
  const template = useQuery({ ...queries.template(existing ?? ""), enabled: existing !== null });
  if (existing && !template.data) return <PendingPage query={template} what="template" title="New version" />;
  return (
    <Page narrow title={existing ? `New version of ${template.data?.display_name || existing}` : "New template"}>
      {version ? (
        <Import key={version} version={version} name={params.get("name") ?? ""} template={template.data} />
      ) : (
        <Choose template={template.data} starter={params.get("starter") ?? ""} />
      )}
    </Page>
  );
}

function Choose({ template, starter }: { template: Template | undefined; starter: string }) {
  const [, navigate] = useLocation();
  const [source, setSource] = useState<Source | undefined>(starter ? { kind: "starter", id: starter } : undefined);
  const [from, setFrom] = useState<"starter" | "folder">(template ? "folder" : "starter");
  const refOf = useTemplateRef();
  const ref = template && refOf(template);
  const organizations = useQuery(queries.organizations());
  const [picked, setOrganization] = useState("");
  const organization = picked || (organizations.data?.find((o) => o.is_default) ?? organizations.data?.[0])?.id;
  const templates = useQuery({ ...queries.templates(), enabled: !template });
  const taken = (templates.data ?? []).filter((t) => t.organization_id === organization).map((t) => t.name);
  const [typed, setName] = useState<string>();
  const [message, setMessage] = useState("");
  const [tags, setTags] = useState("");
  const base = source?.kind === "folder" ? nameFrom(source.name) : source?.kind === "starter" ? source.id : "";
  const chosen = typed ?? (base && templates.data ? freeName(base, taken) : "");
  const start = useMutation({
    mutationFn: async () => {
      const file =
        source?.kind === "folder"
          ? { file_id: (await send("POST files", { body: source.archive })).hash }
          : { example_id: source?.id };
      const to = template ? { template_id: template.id } : {};
      return createVersion(
        { ...file, ...to, tags: parseTags(tags), message },
        template?.organization_id ?? organization,
      );
    },
    onSuccess: (v) => navigate(importing(v.id, chosen, ref)),
  });
  const pick = (kind: typeof from) => {
    setFrom(kind);
    setSource(undefined);
  };
  return (
    <Form
      request={start}
      submit="Import"
      disabled={!source || (!template && chosen === "")}
      cancel={<LinkButton href={ref ? paths.template(ref) : paths.templates}>Cancel</LinkButton>}
    >
      <Card
        title="Source"
        actions={
          !template && (
            <div className="flex gap-1">
              <Button
                small
                look={from === "starter" ? "primary" : "quiet"}
                aria-pressed={from === "starter"}
                onClick={() => pick("starter")}
              >
                Starter
              </Button>
              <Button
                small
                look={from === "folder" ? "primary" : "quiet"}
                aria-pressed={from === "folder"}
                onClick={() => pick("folder")}
              >
                Upload a folder
              </Button>
            </div>
          )
        }
      >
        {from === "starter" ? (
          <StarterChoice
            value={source?.kind === "starter" ? source.id : ""}
            onChange={(id) => setSource({ kind: "starter", id })}
          />
        ) : (
          <FolderInput onChange={setSource} />
        )}
      </Card>
      <Card>
        <div className="grid gap-4 sm:grid-cols-2">
          {!template && (
            <TextField
              label="Name"
              value={chosen}
              onChange={setName}
              maxLength={32}
              autoComplete="off"
              spellCheck={false}
              hint={
                base
                  ? "Lower-case letters, digits and hyphens. Part of the template's address."
                  : "Choose a source: it suggests a name."
              }
            />
          )}
          {template && (
            <TextField
              label="Message"
              value={message}
              onChange={setMessage}
              hint="Describe what changed."
              maxLength={1024}
            />
          )}
          {!template && (organizations.data?.length ?? 0) > 1 && (
            <Field label="Organization" hint="Its members can use the template, and its provisioners run it.">
              {(props) => (
                <Select {...props} value={organization} onChange={(e) => setOrganization(e.target.value)}>
                  {organizations.data?.map((o) => (
                    <option key={o.id} value={o.id}>
                      {o.display_name}
                    </option>
                  ))}
                </Select>
              )}
            </Field>
          )}
          <TagsInput value={tags} onChange={setTags} />
        </div>
      </Card>
    </Form>
  );
}

function Import({
  version: id,
  name: given,
  template,
}: {
  version: string;
  name: string;
  template: Template | undefined;
}) {
  const [, navigate] = useLocation();
  const refOf = useTemplateRef();
  const ref = template && refOf(template);
  const [name, setName] = useState(given);
  const version = useQuery(queries.version(id));
  const templates = useQuery({ ...queries.templates(), enabled: !template });
  const finish = useMutation({
    mutationFn: async () => {
      if (template) {
        await activateVersion(template.id, id);
        return template;
      }
      return post("organizations/{organization}/templates", {
        organization: version.data!.organization_id,
        body: { ...aboutOf(version.data!, templates.data ?? []), name, template_version_id: id },
      });
    },
    onSuccess: (made) => navigate(paths.template(refOf(made))),
  });
  const again = useMutation({
    mutationFn: (values: VariableValue[]) => reimport(version.data!, values, template),
    onSuccess: (v) => navigate(importing(v.id, name, ref)),
  });
  const cancel = useMutation({
    mutationFn: () => send("PATCH templateversions/{templateversion}/cancel", { templateversion: id }),
  });
  if (!version.data) return <Pending query={version} what="import" />;
  const { job } = version.data;
  return (
    <>
      <ImportResult version={version.data} />
      {job.error_code === "REQUIRED_TEMPLATE_VARIABLES" && (
        <Card title="Variables">
          <VariablesForm version={id} request={again} />
        </Card>
      )}
      {job.status === "succeeded" && (
        <Card title="Import succeeded">
          <Form
            request={finish}
            submit={template ? "Activate version" : "Create template"}
            disabled={!template && (name === "" || !templates.data)}
            cancel={template && <LinkButton href={`${paths.template(ref!)}/versions`}>Not now</LinkButton>}
          >
            {template ? (
              <p className="text-muted">New workspaces use it immediately, existing ones after their next update.</p>
            ) : (
              <>
                <Shown name={name} about={aboutOf(version.data, templates.data ?? [])} />
                {(given === "" || finish.isError) && (
                  <TextField
                    label="Name"
                    name="name"
                    required
                    maxLength={32}
                    value={name}
                    onChange={setName}
                    className="max-w-sm"
                  />
                )}
              </>
            )}
          </Form>
        </Card>
      )}
      {(job.status === "pending" || job.status === "running") && (
        <div>
          <Button busy={cancel.isPending} onClick={() => cancel.mutate()}>
            Cancel import
          </Button>
        </div>
      )}
      {job.status === "canceled" && <Note tone="warn" title="Import canceled" />}
      {(job.status === "failed" || job.status === "canceled") && (
        <div className="flex flex-wrap gap-2">
          {ref && (
            <LinkButton look="primary" href={paths.editVersion(ref, version.data.name)}>
              Edit files
            </LinkButton>
          )}
          <LinkButton href={ref ? `${paths.newTemplate}?template=${encodeURIComponent(ref)}` : paths.newTemplate}>
            Choose another source
          </LinkButton>
        </div>
      )}
    </>
  );
}

const longestDisplayName = 64; // the server's limit

// aboutOf is what the version's README says about its template. A display name that another template has gets a number.
function aboutOf({ readme_metadata: about, organization_id }: TemplateVersion, templates: Template[]): ReadmeMetadata {
  const shown = about.display_name;
  if (!shown) return about;
  const taken = new Set(templates.filter((t) => t.organization_id === organization_id).map((t) => t.display_name));
  let free = shown;
  for (let n = 2; taken.has(free); n++) free = `${shown} ${n}`;
  return { ...about, display_name: free.length > longestDisplayName ? shown : free };
}

// Shown is the new template as users will see it.
const Shown = ({ name, about }: { name: string; about: ReadmeMetadata }) => (
  <div className="flex items-start gap-3">
    <Icon src={about.icon} name={name} className="size-9" />
    <div className="min-w-0">
      <p className="font-semibold">
        {about.display_name || name}{" "}
        {about.display_name && <span className="text-[13px] font-normal text-muted">{name}</span>}
      </p>
      <p className="text-muted">{about.description || "No description"}</p>
      <p className="mt-1 text-[13px] text-muted">
        Users see this when they create a workspace. You can change it in the template's settings.
      </p>
    </div>
  </div>
);
