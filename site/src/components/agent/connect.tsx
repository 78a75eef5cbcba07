// How a user's computer reaches an agent: commands to copy, for each system.
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { Workspace, WorkspaceAgent } from "~/api/types";
import { CopyLine } from "~/components/ui/copy";
import { cx } from "~/components/ui/cx";
import { DocsLink } from "~/components/ui/docs-link";
import { Note } from "~/components/ui/note";
import { useMe } from "~/components/ui/user";
import { installCommand, systemOf, systems } from "~/lib/downloads";
import { sshHost } from "~/lib/editors";
import { paths } from "~/lib/path";
import { sh } from "~/lib/shell";

// useBrowserOnly reports whether users' own programs do not reach workspaces.
export const useBrowserOnly = () => useQuery(queries.entitlements()).data?.features["browser_only"]?.enabled ?? false;

export function Connect({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const ssh = useQuery(queries.sshConfig()).data;
  const several = workspace.latest_build.resources.flatMap((r) => r.agents ?? []).length > 1;
  const mine = useMe().id === workspace.owner_id;
  const short = several ? `${workspace.name}.${agent.name}` : workspace.name;
  const name = mine ? short : `${workspace.owner_name}/${short}`;
  const [system, choose] = useState(systemOf(navigator.userAgent) ?? "linux");
  if (useBrowserOnly())
    return (
      <Note tone="accent" title="Workspaces of this deployment are reached in the browser only">
        Its operator has switched off command lines, editors and SSH clients. Use the terminal, the apps and the shared
        ports.
      </Note>
    );
  return (
    <div className="grid gap-3 @2xl:grid-cols-2">
      <div role="group" aria-label="System of this computer" className="flex gap-1 lg:col-span-2">
        {systems.map((s) => (
          <button
            key={s.system}
            type="button"
            aria-pressed={s.system === system}
            onClick={() => choose(s.system)}
            className={cx(
              "rounded-md px-2 py-0.5 text-[13px]",
              s.system === system ? "bg-raised text-ink" : "text-muted hover:text-ink",
            )}
          >
            {s.name}
          </button>
        ))}
      </div>
      <Labelled
        label={
          system === "windows" ? "Install the command line, in PowerShell" : "Install the command line, in a shell"
        }
      >
        <CopyLine label="install command" text={installCommand(system, location.origin)} />
      </Labelled>
      <Labelled label="Sign in">
        <CopyLine label="login command" text={sh`coder login ${location.origin}`} />
      </Labelled>
      <Labelled label="SSH">
        <CopyLine label="SSH command" text={sh`coder ssh ${name}`} />
      </Labelled>
      <Labelled label="OpenSSH (needs coder config-ssh)">
        <CopyLine label="OpenSSH command" text={sh`ssh ${sshHost(workspace, agent, mine, ssh)}`} />
      </Labelled>
      <Labelled label="Forward a port">
        <CopyLine label="port-forward command" text={sh`coder port-forward ${name} --tcp 8080:8080`} />
      </Labelled>
      <Labelled label="Test the connection">
        <CopyLine label="ping command" text={sh`coder ping ${name}`} />
      </Labelled>
      <p className="text-[13px] text-muted lg:col-span-2">
        OpenSSH and Zed also need <code>coder config-ssh</code>. VS Code and its forks need the extension{" "}
        <b>Coder Remote</b>, JetBrains Toolbox the plugin <b>Coder</b>:{" "}
        <DocsLink to="connecting#ides">Editors</DocsLink>. There are{" "}
        <Link className="underline" href={paths.downloads}>
          downloads
        </Link>{" "}
        for each system.
        {agent.expanded_directory && (
          <>
            {" "}
            Sessions start in <code>{agent.expanded_directory}</code>.
          </>
        )}
      </p>
    </div>
  );
}

const Labelled = ({ label, children }: { label: string; children: ReactNode }) => (
  <div className="min-w-0">
    <p className="mb-1 text-[13px] text-muted">{label}</p>
    {children}
  </div>
);
