// What an agent offers to open: a terminal, editors and apps.
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ExternalLink, SquareTerminal } from "lucide-react";
import { useState } from "react";
import { openWithToken } from "~/api/actions";
import { queries } from "~/api/queries";
import type { Workspace, WorkspaceAgent, WorkspaceApp } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Button, buttonClass } from "~/components/ui/button";
import { cx } from "~/components/ui/cx";
import { ErrorNote } from "~/components/ui/error-note";
import { Icon } from "~/components/ui/icon";
import { Item, Menu } from "~/components/ui/menu";
import { useMe } from "~/components/ui/user";
import { derived, editorLink, jetbrainsLink, sshHost, zedLink } from "~/lib/editors";
import { appLink, opens, plainText, wantsToken, withToken } from "~/lib/links";
import { paths } from "~/lib/path";
import { useRegion } from "~/lib/region";
import { useBrowserOnly } from "./connect";

export function Apps({ workspace, agent, enabled }: { workspace: Workspace; agent: WorkspaceAgent; enabled: boolean }) {
  const host = useQuery(queries.appsHost()).data?.host ?? "";
  const [error, setError] = useState<unknown>();
  const open = (make: (token: string) => string) => openWithToken(make).catch(setError);
  const browserOnly = useBrowserOnly();
  const shows = (name: WorkspaceAgent["display_apps"][number]) =>
    agent.display_apps.includes(name) && (name === "web_terminal" || !browserOnly);
  const look = cx(buttonClass(), !enabled && "pointer-events-none opacity-50");
  const groups = new Map<string, WorkspaceApp[]>();
  for (const app of agent.apps.filter((a) => !a.hidden))
    groups.set(app.group ?? "", [...(groups.get(app.group ?? "") ?? []), app]);
  return (
    <div className="flex flex-col gap-2">
      <div className="flex flex-wrap gap-2">
        {shows("web_terminal") && (
          <a
            className={look}
            aria-disabled={!enabled}
            tabIndex={enabled ? 0 : -1}
            href={paths.terminal(workspace.owner_name, workspace.name, agent.name)}
            target="_blank"
            rel="noopener"
          >
            <SquareTerminal aria-hidden /> Terminal
          </a>
        )}
        {shows("vscode") && (
          <Button
            disabled={!enabled}
            onClick={() => void open((token) => editorLink("vscode", workspace, agent, token))}
          >
            <Icon src="/icon/code.svg" name="VS Code" className="size-4" /> VS Code
          </Button>
        )}
        {shows("vscode_insiders") && (
          <Button
            disabled={!enabled}
            onClick={() => void open((token) => editorLink("vscode-insiders", workspace, agent, token))}
          >
            <Icon src="/icon/code-insiders.svg" name="VS Code Insiders" className="size-4" /> VS Code Insiders
          </Button>
        )}
        {shows("ssh_helper") && (
          <Button disabled={!enabled} onClick={() => void open((token) => jetbrainsLink(workspace, agent, token))}>
            <Icon src="/icon/jetbrains.svg" name="JetBrains" className="size-4" /> JetBrains
          </Button>
        )}
        {(shows("vscode") || shows("ssh_helper")) && (
          <OtherEditors {...{ workspace, agent, enabled }} open={(make) => void open(make)} />
        )}
        {(groups.get("") ?? []).map((app) => (
          <AppLink key={app.id} {...{ workspace, agent, app, host, enabled }} open={(make) => void open(make)} />
        ))}
      </div>
      {[...groups]
        .filter(([name]) => name !== "")
        .map(([name, apps]) => (
          <div key={name} role="group" aria-label={name} className="flex flex-wrap items-center gap-2">
            <span className="text-[13px] text-muted">{name}</span>
            {apps.map((app) => (
              <AppLink key={app.id} {...{ workspace, agent, app, host, enabled }} open={(make) => void open(make)} />
            ))}
          </div>
        ))}
      <ErrorNote error={error} />
    </div>
  );
}

// OtherEditors offers editors that few people have: those that run VS Code's extension, and Zed, which connects by SSH.
function OtherEditors({
  workspace,
  agent,
  enabled,
  open,
}: {
  workspace: Workspace;
  agent: WorkspaceAgent;
  enabled: boolean;
  open: (make: (token: string) => string) => void;
}) {
  const ssh = useQuery(queries.sshConfig()).data;
  const mine = useMe().id === workspace.owner_id;
  const picture = (icon: string, name: string) => <Icon src={icon} name={name} className="size-4" />;
  return (
    <Menu
      align="start"
      trigger={
        <Button disabled={!enabled}>
          Other editors <ChevronDown aria-hidden />
        </Button>
      }
    >
      {agent.display_apps.includes("vscode") &&
        derived.map(({ scheme, name, icon }) => (
          <Item
            key={scheme}
            icon={picture(icon, name)}
            onSelect={() => open((token) => editorLink(scheme, workspace, agent, token))}
          >
            {name}
          </Item>
        ))}
      {agent.display_apps.includes("ssh_helper") && (
        <Item
          icon={picture("/icon/zed.svg", "Zed")}
          onSelect={() => {
            const link = zedLink(sshHost(workspace, agent, mine, ssh), agent.expanded_directory);
            if (link) location.assign(link);
          }}
        >
          Zed (needs coder config-ssh)
        </Item>
      )}
    </Menu>
  );
}

const shared = {
  owner: "",
  authenticated: "Any signed-in user can open it",
  organization: "Any member of the organization can open it",
  public: "Anyone on the network can open it",
};

function AppLink({
  workspace,
  agent,
  app,
  host,
  enabled,
  open,
}: {
  workspace: Workspace;
  agent: WorkspaceAgent;
  app: WorkspaceApp;
  host: string;
  enabled: boolean;
  open: (make: (token: string) => string) => void;
}) {
  const name = app.display_name || app.slug;
  const link = appLink(workspace, agent, app, host, useRegion());
  const tooltip = plainText(app.tooltip ?? "") || undefined;
  const content = (
    <>
      <Icon src={app.icon} name={name} className="size-4" /> {name}
      {app.health === "initializing" && <Badge tone="accent">starting</Badge>}
      {app.health === "unhealthy" && <Badge tone="bad">unhealthy</Badge>}
      {app.sharing_level !== "owner" && <Badge title={shared[app.sharing_level]}>{app.sharing_level}</Badge>}
      {app.external && <ExternalLink aria-hidden />}
    </>
  );
  if (link === "")
    return (
      <Button
        disabled
        title={
          app.external
            ? "The template gives this app no address that can be opened safely."
            : "Subdomain apps are off. Ask your admin to start the server with --wildcard-access-url."
        }
      >
        {content}
      </Button>
    );
  if (wantsToken(app))
    return (
      <Button disabled={!enabled} title={tooltip} onClick={() => open((token) => withToken(link, token))}>
        {content}
      </Button>
    );
  const off = !enabled && !app.external;
  return (
    <a
      href={link}
      title={tooltip}
      onClick={opens(app, link)}
      target={app.external && !/^https?:/.test(link) ? undefined : "_blank"}
      rel="noopener noreferrer"
      aria-disabled={off}
      tabIndex={off ? -1 : 0}
      className={cx(buttonClass(), off && "pointer-events-none opacity-50")}
    >
      {content}
    </a>
  );
}
