// The settings with which the operator runs this server, and where each comes from.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { DeploymentOption } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { cx } from "~/components/ui/cx";
import { Empty } from "~/components/ui/empty";
import { Checkbox, SearchInput } from "~/components/ui/form";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";
import { isOwner, useMe } from "~/components/ui/user";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

const sources: Record<string, string> = { flag: "flag", env: "environment", yaml: "file", default: "default" };

const sourceOf = (o: DeploymentOption) => sources[o.value_source] ?? o.value_source;

const has = (text: string, words: string[]) => words.every((w) => text.toLowerCase().includes(w));

// The server leaves out the values of secrets.
const matches = (o: DeploymentOption, words: string[]) =>
  has(`${o.name} ${o.flag} ${o.env} ${o.description} ${o.value} ${sourceOf(o)}`, words);

// What the dashboard sets, and the database keeps.
const elsewhere = [
  { to: paths.appearance, name: "Appearance", about: "name, logo, announcements and banners" },
  { to: paths.deploymentNotifications, name: "Notification settings", about: "how events are delivered, and pausing" },
  { to: paths.webhooks, name: "Webhooks", about: "events for other services" },
  { to: paths.regions, name: "Regions", about: "region proxies and their tokens" },
  { to: "/health", name: "Health", about: "checks that are dismissed" },
  { to: "/deployment/idp-org-sync", name: "Organization sync", about: "claims of the identity provider" },
];

export default function DeploymentSettings() {
  useTitle("Settings");
  const me = useMe();
  if (!isOwner(me))
    return (
      <Page title="Settings">
        <Note tone="warn" title="Only owners can read the server's settings." />
      </Page>
    );
  return <Settings />;
}

function Settings() {
  const config = useQuery(queries.deploymentConfig());
  const [search, setSearch] = useState("");
  const [chosen, onlyChosen] = useState(false);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const others = elsewhere.filter((e) => has(`${e.name} ${e.about}`, words));
  const rows = config.data?.options.filter((o) => matches(o, words) && (!chosen || o.value_source !== "default")) ?? [];
  return (
    <Page
      title="Settings"
      subtitle="What this server was started with. Change it by flag, environment or file, and restart the server."
      actions={<DocsLink to="settings">Settings</DocsLink>}
    >
      <div className="flex flex-wrap items-center gap-4">
        <SearchInput label="Search settings" placeholder="Search settings" value={search} onChange={setSearch} />
        <Checkbox label="Only those that are set" checked={chosen} onChange={onlyChosen} />
      </div>
      <Card flush>
        <Pending query={config} what="settings" />
        {config.data && rows.length === 0 && <Empty title="No such setting">Search for another word.</Empty>}
        {rows.length > 0 && (
          <Table
            label="Settings"
            rows={rows}
            id={(o) => o.flag}
            columns={[
              {
                name: "Setting",
                cell: (o) => (
                  <>
                    <code className={mono}>--{o.flag}</code>
                    <span className="block text-[13px] text-muted">{o.description}</span>
                  </>
                ),
              },
              { name: "Value", cell: (o) => <Value of={o} />, className: "min-w-32 break-all" },
              {
                name: "Variable, key in the file",
                className: "break-all",
                cell: (o) => (
                  <>
                    <code className={mono}>{o.env}</code>
                    <code className={cx(mono, "block text-muted")}>{o.name}</code>
                  </>
                ),
              },
              {
                name: "Source",
                cell: (o) => <Badge tone={o.value_source === "default" ? "plain" : "accent"}>{sourceOf(o)}</Badge>,
              },
            ]}
          />
        )}
      </Card>
      {others.length > 0 && (
        <Card title="Set in the dashboard">
          <ul className="flex flex-col gap-1.5">
            {others.map((e) => (
              <li key={e.to}>
                <Link className="font-medium text-accent hover:underline" href={e.to}>
                  {e.name}
                </Link>
                <span className="text-muted">: {e.about}</span>
              </li>
            ))}
          </ul>
        </Card>
      )}
    </Page>
  );
}

function Value({ of }: { of: DeploymentOption }) {
  if (of.annotations["secret"] === "true")
    return (
      <span className="text-muted">{of.value_source === "default" ? "not set" : "set; secrets are not shown"}</span>
    );
  return of.value === "" ? <span className="text-muted">not set</span> : <code className={mono}>{of.value}</code>;
}
