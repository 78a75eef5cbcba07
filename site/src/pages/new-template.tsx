import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation, useSearch } from "wouter";
import { post, send } from "~/api/client";
import { queries } from "~/api/queries";
import { activateVersion, createVersion, reimport } from "~/api/templates";
import type { Template, VariableValue } from "~/api/types";
import { ImportResult } from "~/components/template/import-result";
import { FolderInput, type Source, StarterChoice } from "~/components/template/upload";
import { VariablesForm } from "~/components/template/variables-form";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Field, Form, Select, TextField } from "~/components/ui/form";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending, PendingPage } from "~/components/ui/pending";
import { TagsInput, parseTags } from "~/components/ui/tags-input";
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
  const [name, setName] = useState("");
  const [message, setMessage] = useState("");
  const [tags, setTags] = useState("");
  const suggested =
    source?.kind === "folder"
      ? source.name
          .toLowerCase()
          .replace(/[^a-z0-9]+/g, "-")
          .replace(/^-|-$/g, "")
      : source?.kind === "starter"
        ? source.id
        : "";
  const chosen = name || suggested;
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
              value={name}
              placeholder={suggested}
              onChange={setName}
              maxLength={32}
              hint="Lower-case letters, digits and hyphens. Shown when users create a workspace."
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
  const finish = useMutation({
    mutationFn: async () => {
      if (template) {
        await activateVersion(template.id, id);
        return template;
      }
      return post("organizations/{organization}/templates", {
        organization: version.data!.organization_id,
        body: { name, template_version_id: id },
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
        <Card title={template ? "Import succeeded" : "Import succeeded: name your template"}>
          <Form
            request={finish}
            submit={template ? "Activate version" : "Create template"}
            cancel={template && <LinkButton href={`${paths.template(ref!)}/versions`}>Not now</LinkButton>}
          >
            {template ? (
              <p className="text-muted">New workspaces use it immediately, existing ones after their next update.</p>
            ) : (
              <TextField label="Name" name="name" required value={name} onChange={setName} className="max-w-sm" />
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
