import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { Plus, Trash2, Upload } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { Link, useLocation } from "wouter";
import { send } from "~/api/client";
import { lists, pageOf, rowsPerPage } from "~/api/lists";
import { gone, queries } from "~/api/queries";
import { activateVersion } from "~/api/templates";
import type { Template, TemplateVersion } from "~/api/types";
import { Files } from "~/components/code/files";
import { TemplateAccess } from "~/components/template/access";
import { TemplateSettings } from "~/components/template/settings";
import { Readme, VersionParameters, VersionResources, VersionVariables } from "~/components/template/version-parts";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { Confirm } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Facts } from "~/components/ui/facts";
import { Checkbox, SearchInput } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { LinkButton } from "~/components/ui/link-button";
import { Loading } from "~/components/ui/loading";
import { Item, MoreMenu } from "~/components/ui/menu";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pager } from "~/components/ui/pager";
import { Pending, PendingPage } from "~/components/ui/pending";
import { jobTone } from "~/components/ui/status";
import { Table } from "~/components/ui/table";
import { TabsNav } from "~/components/ui/tabs-nav";
import { Tags } from "~/components/ui/tags";
import { useTemplatePermissions } from "~/components/ui/user";
import { duration, plural } from "~/lib/format";
import { useDebounced, useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

const TemplatePrebuilds = lazy(() => import("~/components/template/prebuilds"));
const TemplateEmbed = lazy(() => import("./template-embed"));
const TemplateInsights = lazy(() => import("~/components/template/insights"));

export default function TemplatePage({ name, tab = "" }: { name: string; tab: string | undefined }) {
  useTitle(name);
  const template = useQuery(queries.template(name));
  if (gone(template.error))
    return (
      <Empty page title="Template not found" action={<LinkButton href={paths.templates}>All templates</LinkButton>} />
    );
  if (!template.data) return <PendingPage query={template} what="template" title={name} />;
  return <Shown template={template.data} tab={tab} />;
}

function Shown({ template: t, tab }: { template: Template; tab: string }) {
  const may = useTemplatePermissions(t.id);
  const version = useQuery(queries.version(t.active_version_id));
  const [, navigate] = useLocation();
  const [removing, remove] = useState(false);
  const ref = useTemplateRef()(t);
  const at = paths.template(ref);
  const upload = `${paths.newTemplate}?template=${encodeURIComponent(ref)}`;
  const tabs = [
    { key: "", name: "Overview", to: at },
    { key: "versions", name: "Versions", to: `${at}/versions` },
    { key: "files", name: "Files", to: `${at}/files` },
    { key: "resources", name: "Resources", to: `${at}/resources` },
    ...(may.update ? [{ key: "variables", name: "Variables", to: `${at}/variables` }] : []),
    ...(may.share ? [{ key: "permissions", name: "Permissions", to: `${at}/permissions` }] : []),
    ...(may.update ? [{ key: "insights", name: "Insights", to: `${at}/insights` }] : []),
    ...(may.use ? [{ key: "embed", name: "Embed", to: `${at}/embed` }] : []),
    ...(may.update ? [{ key: "settings", name: "Settings", to: `${at}/settings` }] : []),
  ];
  return (
    <Page
      title={
        <span className="flex items-center gap-2.5">
          <Icon src={t.icon} name={t.name} className="size-7" />
          {t.display_name || t.name}
        </span>
      }
      subtitle={t.description}
      actions={
        <>
          {may.use && (
            <LinkButton look="primary" href={paths.create(ref)}>
              <Plus /> Create workspace
            </LinkButton>
          )}
          {may.update && (
            <LinkButton href={upload}>
              <Upload /> New version
            </LinkButton>
          )}
          {may.delete && (
            <MoreMenu of={t.name}>
              <Item icon={<Trash2 />} danger onSelect={() => remove(true)}>
                Delete…
              </Item>
            </MoreMenu>
          )}
        </>
      }
    >
      {removing && (
        <Confirm
          title={`Delete ${t.name}?`}
          action="Delete"
          danger
          typed={t.name}
          onConfirm={async () => {
            await send("DELETE templates/{template}", { template: t.id });
            navigate(paths.templates);
          }}
          onClose={() => remove(false)}
        >
          You can no longer create workspaces from it. A template that still has workspaces cannot be deleted.
        </Confirm>
      )}
      {t.deprecated && (
        <Note tone="warn" title="This template is deprecated">
          {t.deprecation_message}
        </Note>
      )}
      <TabsNav label="Template" tabs={tabs} current={tab} />
      <ErrorNote error={version.error} />
      {version.data && <Tab template={t} version={version.data} tab={tab} />}
    </Page>
  );
}

function Tab({ template: t, version, tab }: { template: Template; version: TemplateVersion; tab: string }) {
  const ref = useTemplateRef();
  switch (tab) {
    case "versions":
      return <Versions template={t} />;
    case "files":
      return (
        <Card flush>
          <Files file={version.job.file_id} />
        </Card>
      );
    case "resources":
      return (
        <>
          <Card title="Resources" flush>
            <VersionResources id={version.id} />
          </Card>
          <VersionParameters id={version.id} />
        </>
      );
    case "variables":
      return <TemplateVariables template={t} version={version} />;
    case "permissions":
      return <TemplateAccess template={t} />;
    case "insights":
      return (
        <Suspense fallback={<Loading what="insights" />}>
          <TemplateInsights template={t} />
        </Suspense>
      );
    case "embed":
      return (
        <Suspense fallback={<Loading what="link" />}>
          <TemplateEmbed template={t} />
        </Suspense>
      );
    case "settings":
      return <TemplateSettings key={t.id} template={t} />;
    default:
      return (
        <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_20rem]">
          <Card title="README">
            <Readme text={version.readme} />
          </Card>
          <div className="grid gap-4">
            <Card title="Details">
              <Facts
                of={[
                  ["Name", <code key="n">{t.name}</code>],
                  [
                    "Active version",
                    <Link
                      key="v"
                      className="font-mono text-accent hover:underline"
                      href={paths.version(ref(t), version.name)}
                    >
                      {version.name}
                    </Link>,
                  ],
                  ["Updated", <Ago key="u" at={version.created_at} />],
                  ["By", version.created_by.username],
                  ["Active users", t.active_user_count < 0 ? "–" : plural(t.active_user_count, "user")],
                  [
                    "Median start",
                    t.build_time_stats?.["start"]?.P50 != null ? duration(t.build_time_stats["start"].P50) : "–",
                  ],
                  ["Provisioner", <Tags key="t" of={version.job.tags} none="Any without tags" />],
                  ["Available to", <Rights key="r" template={t.id} />],
                ]}
              />
            </Card>
            <Suspense fallback={null}>
              <TemplatePrebuilds template={t} />
            </Suspense>
          </div>
        </div>
      );
  }
}

// Rights names who can create workspaces from a template.
function Rights({ template }: { template: string }) {
  const { data } = useQuery(queries.templateRights(template));
  if (!data) return "–";
  if (data.group.length + data.users.length === 0) return "Template admins only";
  return [...data.group, ...data.users]
    .map((x) => ("username" in x ? x.username : x.display_name || x.name))
    .join(", ");
}

export function Versions({ template: t }: { template: Template }) {
  const ref = useTemplateRef()(t);
  const editor = useTemplatePermissions(t.id).update;
  const [archived, showArchived] = useState(false);
  const [search, setSearch] = useState("");
  const [page, setPage] = useState(0);
  const rested = useDebounced(search.trim(), 200);
  const versions = useQuery({
    ...lists.versions(t.id, rested, archived, page),
    placeholderData: keepPreviousData,
  });
  const { rows, count } = pageOf(versions.data, page);
  const promote = useMutation({
    mutationFn: (version: string) => activateVersion(t.id, version),
  });
  if (!versions.data) return <Pending query={versions} what="versions" />;
  return (
    <>
      <SearchInput
        label="Search versions"
        placeholder="Search by name or message"
        value={search}
        onChange={(text) => {
          setSearch(text);
          setPage(0);
        }}
      />
      <Card
        flush
        title="Versions"
        actions={
          <Checkbox
            label="Show archived"
            checked={archived}
            onChange={(on) => {
              showArchived(on);
              setPage(0);
            }}
            className="text-[13px]"
          />
        }
      >
        {rows.length === 0 && <Empty title="No versions found" />}
        <ErrorNote error={promote.error} />
        <Table
          label="Versions"
          rows={rows}
          id={(v) => v.id}
          columns={[
            {
              name: "Version",
              cell: (v) => (
                <>
                  <Link className="font-mono font-medium hover:underline" href={paths.version(ref, v.name)}>
                    {v.name}
                  </Link>{" "}
                  {v.id === t.active_version_id && <Badge tone="ok">active</Badge>}
                  {v.archived && <Badge>archived</Badge>}
                </>
              ),
            },
            {
              name: "Import",
              cell: (v) => <Badge tone={jobTone[v.job.status] ?? "plain"}>{v.job.status}</Badge>,
            },
            {
              name: "Message",
              cell: (v) => v.message && <span title={v.message}>{v.message}</span>,
              className: "max-w-xl truncate",
            },
            { name: "By", cell: (v) => v.created_by.username },
            { name: "When", cell: (v) => <Ago at={v.created_at} /> },
            {
              name: "Actions",
              action: true,
              cell: (v) =>
                editor &&
                v.id !== t.active_version_id &&
                !v.archived &&
                v.job.status === "succeeded" && (
                  <button type="button" className="text-accent hover:underline" onClick={() => promote.mutate(v.id)}>
                    Activate
                  </button>
                ),
            },
          ]}
        />
      </Card>
      <Pager
        page={page}
        size={rowsPerPage}
        rows={rows.length}
        count={count}
        back="Newer"
        forth="Older"
        onPage={setPage}
      />
    </>
  );
}

function TemplateVariables({ template, version }: { template: Template; version: TemplateVersion }) {
  const ref = useTemplateRef()(template);
  const variables = useQuery(queries.variables(version.id));
  if (variables.data?.length === 0)
    return (
      <Card>
        <Empty title="This template has no variables">
          Terraform variables apply to all workspaces of a template: the address or the secret of a cloud, for example.
        </Empty>
      </Card>
    );
  return (
    <>
      <ErrorNote error={variables.error} />
      <VersionVariables id={version.id} />
      <div>
        <LinkButton href={`${paths.version(ref, version.name)}?tab=variables`}>Change values</LinkButton>
      </div>
    </>
  );
}
