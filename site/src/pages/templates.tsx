import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Boxes, Plus } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { TemplateOrder } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { SearchInput, Select } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { LinkButton } from "~/components/ui/link-button";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { mayEditTemplates, useMe } from "~/components/ui/user";
import { duration, plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

export default function Templates() {
  useTitle("Templates");
  const editor = mayEditTemplates(useMe());
  const [sort, setSort] = useState<TemplateOrder>("name");
  const list = useQuery({ ...queries.templates(sort === "name" ? "" : sort), placeholderData: keepPreviousData });
  const ref = useTemplateRef();
  const several = new Set(list.data?.map((t) => t.organization_id)).size > 1;
  const [search, setSearch] = useState("");
  const wanted = search.toLowerCase();
  const shown = (list.data ?? []).filter((t) =>
    `${t.name} ${t.display_name} ${t.description}`.toLowerCase().includes(wanted),
  );
  return (
    <Page
      title="Templates"
      subtitle="Workspaces are created from templates"
      actions={
        editor && (
          <LinkButton look="primary" href={paths.newTemplate}>
            <Plus /> New template
          </LinkButton>
        )
      }
    >
      <Pending query={list} what="templates" />
      {list.data?.length === 0 && (
        <Card>
          <Empty
            icon={<Boxes />}
            title="No templates yet"
            action={
              editor && (
                <LinkButton look="primary" href={paths.newTemplate}>
                  <Plus /> Create the first template
                </LinkButton>
              )
            }
          >
            {editor
              ? "Start from a template that comes with the server, or upload a folder with Terraform files."
              : "Ask an admin to create one."}
            {editor && (
              <p className="mt-2">
                <DocsLink to="agent">Writing templates</DocsLink>
              </p>
            )}
          </Empty>
        </Card>
      )}
      <div className="flex flex-wrap items-center gap-3">
        {(list.data?.length ?? 0) > 5 && (
          <SearchInput label="Search templates" placeholder="Search" value={search} onChange={setSearch} />
        )}
        {(list.data?.length ?? 0) > 1 && (
          <label className="ml-auto flex items-center gap-2 text-muted">
            Sort
            <Select
              className="h-7! w-auto! text-[13px]"
              value={sort}
              onChange={(e) => setSort(e.target.value as TemplateOrder)}
            >
              <option value="name">Name</option>
              <option value="users">Most users</option>
              <option value="updated">Last updated</option>
            </Select>
          </label>
        )}
      </div>
      {list.data && list.data.length > 0 && (
        <ul className="grid gap-3 md:grid-cols-2 xl:grid-cols-3" aria-label="Templates">
          {shown.map((t) => (
            <li key={t.id} className="flex min-w-0 flex-col gap-3 rounded-lg border border-line bg-panel p-4">
              <div className="flex items-start gap-3">
                <Icon src={t.icon} name={t.name} className="size-9" />
                <div className="min-w-0 flex-1">
                  <Link href={paths.template(ref(t))} className="font-semibold hover:underline">
                    {t.display_name || t.name}
                  </Link>
                  {several && <span className="text-[13px] text-muted"> {t.organization_display_name}</span>}
                  {t.deprecated && (
                    <>
                      {" "}
                      <Badge tone="warn">deprecated</Badge>
                    </>
                  )}
                  <p className="line-clamp-2 text-muted">{t.description || "No description"}</p>
                </div>
              </div>
              <div className="mt-auto flex flex-wrap items-center justify-between gap-2">
                <span className="text-[13px] text-muted">
                  {t.active_user_count >= 0 && `${plural(t.active_user_count, "active user")} · `}
                  {t.build_time_stats?.["start"]?.P50 != null &&
                    `starts in ${duration(t.build_time_stats["start"].P50)} · `}
                  updated <Ago at={t.updated_at} />
                </span>
                <LinkButton
                  small
                  href={paths.create(ref(t))}
                  aria-label={`Create workspace from ${t.display_name || t.name}`}
                >
                  <Plus /> Create workspace
                </LinkButton>
              </div>
            </li>
          ))}
        </ul>
      )}
      {list.data && list.data.length > 0 && shown.length === 0 && <Empty title="No results" />}
    </Page>
  );
}
