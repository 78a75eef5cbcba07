// A terminal in the browser: the nearest region proxy's node, or the server's, carries it over the mesh to the agent. A
// reload, a lost connection or a restarted server finds the same session again.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useRef, useState } from "react";
import { gone, queries } from "~/api/queries";
import type { WorkspaceAgent } from "~/api/types";
import { agentNamed } from "~/components/status";
import { TerminalBar } from "~/components/terminal-bar";
import { connecting, TerminalPane } from "~/components/terminal-pane";
import { TerminalSearch } from "~/components/terminal-search";
import { Empty, LinkButton, Loading, Pending } from "~/components/ui";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import type { Opened } from "~/lib/terminal";
import { newID, sessionIn } from "~/lib/terminal-session";
import { readSettings } from "~/lib/terminal-settings";

export default function TerminalPage({
  owner,
  name,
  agent,
}: {
  owner: string;
  name: string;
  agent: string | undefined;
}) {
  useTitle(`Terminal: ${name}`);
  const workspace = useQuery(queries.workspace(owner, name));
  const back = <LinkButton href={paths.workspace(owner, name)}>Go to the workspace</LinkButton>;
  if (gone(workspace.error))
    return (
      <Empty
        page
        title={workspace.data ? `${name} is no longer available` : "Workspace not found"}
        action={<LinkButton href={paths.workspaces}>Your workspaces</LinkButton>}
      >
        {workspace.data && "It was deleted or transferred to another user, or your access to it has ended."}
      </Empty>
    );
  if (!workspace.data)
    return (
      <div className="p-4">
        <Pending query={workspace} what="terminal" />
      </div>
    );
  const { latest_build: build } = workspace.data;
  const found = agentNamed(build, agent);
  if (build.transition !== "start")
    return (
      <Empty page title="The workspace is not running" action={back}>
        Start it to open a terminal.
      </Empty>
    );
  if (!found)
    return build.job.completed_at ? (
      <Empty page title={agent ? `Agent ${agent} not found` : "The workspace has no agent"} action={back} />
    ) : (
      <Loading what="agent" />
    );
  return <Session key={found.id} owner={owner} name={name} agent={found} />;
}

function Session({ owner, name, agent }: { owner: string; name: string; agent: WorkspaceAgent }) {
  const bar = useRef<HTMLElement>(null);
  const [id] = useState(() => sessionIn(location.search) ?? newID());
  const [command] = useState(() => new URLSearchParams(location.search).get("command"));
  const [terminal, setTerminal] = useState<Opened>();
  const [report, setReport] = useState(connecting);
  const [settings, setSettings] = useState(readSettings);
  const [searches, setSearches] = useState(0); // how often the search was asked for since it was closed
  const search = () => setSearches((n) => n + 1);
  const help = useId();
  useEffect(() => {
    const url = new URL(location.href);
    url.searchParams.set("reconnect", id);
    history.replaceState(history.state, "", url);
  }, [id]);
  const link = new URL(location.pathname, location.origin);
  if (command) link.searchParams.set("command", command);
  link.searchParams.set("reconnect", id);
  const leave = () => bar.current?.querySelector<HTMLElement>("button")?.focus();
  return (
    <div className="flex h-dvh flex-col" data-terminal={report.state} data-region={report.region}>
      <TerminalBar
        bar={bar}
        owner={owner}
        name={name}
        agent={agent.name}
        report={report}
        link={link.href}
        help={help}
        settings={settings}
        onSettings={setSettings}
        onSearch={search}
      />
      <main className="flex min-h-0 flex-1 flex-col bg-white dark:bg-[#0a0d12]">
        {searches > 0 && terminal && (
          <TerminalSearch
            of={terminal}
            asked={searches}
            onClose={() => {
              setSearches(0);
              terminal.terminal.focus();
            }}
          />
        )}
        <TerminalPane
          agent={agent}
          id={id}
          command={command}
          settings={settings}
          help={help}
          onCommand={(what) => (what === "leave" ? leave() : search())}
          onOpened={setTerminal}
          onReport={setReport}
        />
      </main>
    </div>
  );
}
