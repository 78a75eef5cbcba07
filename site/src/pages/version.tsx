import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation, useSearch } from "wouter";
import { lists, rowsPerPage } from "~/api/lists";
import { queries } from "~/api/queries";
import { activateVersion, archiveVersion, reimport } from "~/api/templates";
import type { Template, TemplateVersion, VariableValue } from "~/api/types";
import { Diff } from "~/components/code/diff";
import { Files, useFiles } from "~/components/code/files";
import { ImportResult } from "~/components/template/import-result";
import { VariablesForm } from "~/components/template/variables-form";
import { Readme, VersionParameters, VersionResources, VersionVariables } from "~/components/template/version-parts";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { ErrorNote } from "~/components/ui/error-note";
import { LinkButton } from "~/components/ui/link-button";
import { Page } from "~/components/ui/page";
import { Pending, PendingPage } from "~/components/ui/pending";
import { Suggesting } from "~/components/ui/suggesting";
import { TabsNav } from "~/components/ui/tabs-nav";
import { useTemplatePermissions } from "~/components/ui/user";
import { positionOf } from "~/lib/diagnostic";
import { useDebounced, useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

export default function VersionPage({ template: name, version: versionName }: { template: string; version: string }) {
  useTitle(`${versionName} of ${name}`);
  const template = useQuery(queries.template(name));
  const version = useQuery({
    ...queries.versionByName(template.data?.id ?? "", versionName),
    enabled: template.data !== undefined,
  });
  const editor = useTemplatePermissions(template.data?.id).update;
  const tab = new URLSearchParams(useSearch()).get("tab") ?? "import";
  const [, navigate] = useLocation();
  const [changing, change] = useState(false);
  const promote = useMutation({
    mutationFn: () => activateVersion(template.data!.id, version.data!.id),
  });
  const archive = useMutation({ mutationFn: archiveVersion });
  const again = useMutation({
    mutationFn: (values: VariableValue[]) =>
      reimport({ ...version.data!, message: `Variables changed in ${versionName}` }, values, template.data),
    onSuccess: (v) => navigate(`${paths.newTemplate}?template=${encodeURIComponent(name)}&version=${v.id}`),
  });
  if (!template.data || !version.data)
    return <PendingPage query={template.data ? version : template} what="version" title={versionName} />;
  const v = version.data;
  const active = template.data.active_version_id === v.id;
  const at = paths.version(name, versionName);
  const tabs = ["import", "readme", "files", "changes", "resources", ...(editor ? ["variables"] : [])].map((key) => ({
    key,
    to: key === "import" ? at : `${at}?tab=${key}`,
    name: key === "readme" ? "README" : key[0]!.toUpperCase() + key.slice(1),
  }));
  return (
    <Page
      title={
        <span className="flex flex-wrap items-center gap-2">
          <span className="font-mono">{v.name}</span>
          {active && <Badge tone="ok">active</Badge>}
          {v.archived && <Badge>archived</Badge>}
        </span>
      }
      subtitle={
        <>
          Version of {template.data.display_name || template.data.name} · {v.created_by.username} ·{" "}
          <Ago at={v.created_at} />
          {v.message && ` · ${v.message}`}
        </>
      }
      actions={
        <>
          {editor && !active && v.job.completed_at && (
            <Button busy={archive.isPending} onClick={() => archive.mutate(v)}>
              {v.archived ? "Unarchive" : "Archive"}
            </Button>
          )}
          {editor && <LinkButton href={paths.editVersion(name, v.name)}>Edit files</LinkButton>}
          {editor && !active && !v.archived && v.job.status === "succeeded" && (
            <Button look="primary" busy={promote.isPending} onClick={() => promote.mutate()}>
              Activate version
            </Button>
          )}
          <LinkButton href={`${paths.template(name)}/versions`}>All versions</LinkButton>
        </>
      }
    >
      <ErrorNote error={promote.error ?? archive.error} />
      <TabsNav label="Version" current={tab} tabs={tabs} />
      {tab === "import" && <ImportResult version={v} />}
      {tab === "readme" && (
        <Card>
          <Readme text={v.readme} />
        </Card>
      )}
      {tab === "files" && (
        <Card flush>
          <Files file={v.job.file_id} at={positionOf(v.job.error ?? "")} />
        </Card>
      )}
      {tab === "changes" && <Compare template={template.data} version={v} />}
      {tab === "resources" && (
        <>
          <Card title="Resources" flush>
            <VersionResources id={v.id} />
          </Card>
          <VersionParameters id={v.id} />
        </>
      )}
      {tab === "variables" &&
        (changing ? (
          <Card title="Variables">
            <VariablesForm version={v.id} request={again} />
          </Card>
        ) : (
          <>
            <VersionVariables id={v.id} />
            <div>
              <Button onClick={() => change(true)}>Change values</Button>
            </div>
          </>
        ))}
    </Page>
  );
}

// useOther is the version to compare one with: the one that the user names, and until then the active one, or for that
// the one before.
function useOther(template: Template, version: TemplateVersion) {
  const [name, setName] = useState<string>();
  const rested = useDebounced(name?.trim() ?? "", 200);
  const newest = useQuery(lists.versions(template.id, "", true, 0));
  const found = useQuery({ ...lists.versions(template.id, rested, true, 0), placeholderData: keepPreviousData });
  const isActive = version.id === template.active_version_id;
  const active = useQuery({ ...queries.version(template.active_version_id), enabled: !isActive });
  const older = newest.data?.find((v) => v.created_at < version.created_at);
  const whole = newest.data && newest.data.length <= rowsPerPage;
  const before = useQuery({
    ...lists.versionBefore(version, template),
    enabled: isActive && !older && whole === false,
  });
  const others = (list: TemplateVersion[] = []) => list.filter((v) => v.id !== version.id);
  const usual = isActive ? (older ?? before.data ?? others(newest.data)[0]) : active.data;
  const named = others(found.data).find((v) => v.name.toLowerCase() === rested.toLowerCase());
  return {
    newest,
    name: name ?? usual?.name ?? "",
    setName,
    suggestions: others(found.data),
    other: name === undefined ? usual : name.trim() === rested ? named : undefined,
    only: newest.data !== undefined && others(newest.data).length === 0,
  };
}

// Compare shows what changed in a version's files since another one.
export function Compare({ template, version }: { template: Template; version: TemplateVersion }) {
  const { newest, name, setName, suggestions, other, only } = useOther(template, version);
  const before = useFiles(other?.job.file_id);
  const after = useFiles(version.job.file_id);
  if (!newest.data) return <Pending query={newest} what="versions" />;
  if (only) return <p className="text-muted">This is the only version.</p>;
  return (
    <>
      <div className="max-w-sm">
        <Suggesting
          label="Compare with"
          hint={
            !other
              ? "No other version has this name."
              : other.id === template.active_version_id
                ? "The active version."
                : "Another version of the template."
          }
          value={name}
          onChange={setName}
          offers={suggestions.map((v) => ({ value: v.name, about: v.message }))}
        />
      </div>
      {!other ? null : before.data && after.data ? (
        <Diff before={before.data.files} after={after.data.files} than={other.name} />
      ) : (
        <Pending query={before.data ? after : before} what="files" />
      )}
    </>
  );
}
