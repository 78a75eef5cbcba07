// How a user's computer reaches an agent: commands to copy.
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { Workspace, WorkspaceAgent } from "~/api/types";
import { installCommand, systemOf } from "~/lib/downloads";
import { paths } from "~/lib/path";
import { CopyLine } from "./copy";
import { useMe } from "./user";

export function Connect({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const ssh = useQuery(queries.sshConfig()).data;
  const several = workspace.latest_build.resources.flatMap((r) => r.agents ?? []).length > 1;
  const mine = useMe().id === workspace.owner_id;
  const short = several ? `${workspace.name}.${agent.name}` : workspace.name;
  const name = mine ? short : `${workspace.owner_name}/${short}`;
  const host = mine ? short : `${workspace.owner_name}--${short}`;
  return (
    <div className="grid gap-3 lg:grid-cols-2">
      <Labelled label="Install the command line on this computer">
        <CopyLine label="install command" text={installCommand(systemOf(navigator.userAgent), location.origin)} />
      </Labelled>
      <Labelled label="Sign in">
        <CopyLine label="login command" text={`coder login ${location.origin}`} />
      </Labelled>
      <Labelled label="SSH">
        <CopyLine label="SSH command" text={`coder ssh ${name}`} />
      </Labelled>
      <Labelled label="OpenSSH (needs coder config-ssh)">
        <CopyLine
          label="OpenSSH command"
          text={
            ssh?.hostname_suffix
              ? `ssh ${agent.name}.${workspace.name}.${workspace.owner_name}.${ssh.hostname_suffix}`
              : `ssh ${ssh?.hostname_prefix ?? "coder."}${host}`
          }
        />
      </Labelled>
      <Labelled label="Forward a port">
        <CopyLine label="port-forward command" text={`coder port-forward ${name} --tcp 8080:8080`} />
      </Labelled>
      <Labelled label="Test the connection">
        <CopyLine label="ping command" text={`coder ping ${name}`} />
      </Labelled>
      <p className="text-[13px] text-muted lg:col-span-2">
        OpenSSH and editors also need <code>coder config-ssh</code>. There are{" "}
        <Link className="underline" href={paths.downloads}>
          downloads for other systems
        </Link>
        .
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
