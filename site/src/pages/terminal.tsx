// A terminal in the browser: the nearest region proxy's node, or the server's, carries it over the mesh to the agent. A
// reload, a lost connection or a restarted server finds the same session again.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useRef, useState } from "react";
import { gone, queries } from "~/api/queries";
import type { WorkspaceAgent } from "~/api/types";
import { ConnectionNote } from "~/components/shell/connection-note";
import { TerminalBar } from "~/components/terminal/bar";
import { KeyRow } from "~/components/terminal/key-row";
import { connecting, TerminalPane } from "~/components/terminal/pane";
import { TerminalSearch } from "~/components/terminal/search";
import { TerminalStrip } from "~/components/terminal/strip";
import { Empty } from "~/components/ui/empty";
import { LinkButton } from "~/components/ui/link-button";
import { Loading } from "~/components/ui/loading";
import { Pending } from "~/components/ui/pending";
import { agentNamed } from "~/components/ui/status";
import { useMedia, useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import type { Opened, Report } from "~/lib/terminal";
import { ctrlOf, type PhoneKey, sequenceOf } from "~/lib/terminal-keys";
import { newID } from "~/lib/terminal-session";
import { readSettings } from "~/lib/terminal-settings";
import { all, chosen, closed, current, most, opened, read, write } from "~/lib/terminal-tabs";
import { useVisibleHeight } from "~/lib/visible-height";

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
      <>
        <ConnectionNote />
        <div className="p-4">
          <Pending query={workspace} what="terminal" />
        </div>
      </>
    );
  const { latest_build: build } = workspace.data;
  const found = agentNamed(build, agent);
  if (build.transition !== "start")
    return (
      <Empty page title="The workspace is not running" action={back}>
        {workspace.data.dormant_at ? "It is dormant. Wake it, and start it" : "Start it"} to open a terminal.
      </Empty>
    );
  if (!found)
    return build.job.completed_at ? (
      <Empty page title={agent ? `Agent ${agent} not found` : "The workspace has no agent"} action={back} />
    ) : (
      <Loading what="agent" />
    );
  return <Terminals key={found.id} owner={owner} name={name} agent={found} />;
}

function Terminals({ owner, name, agent }: { owner: string; name: string; agent: WorkspaceAgent }) {
  const bar = useRef<HTMLElement>(null);
  const [tabs, setTabs] = useState(() => read(location.search, newID));
  // The command of the address is the first terminal's.
  const [first] = useState(() => ({
    id: all(tabs)[0],
    command: new URLSearchParams(location.search).get("command"),
  }));
  const [terminals, setTerminals] = useState<ReadonlyMap<string, Opened>>(new Map());
  const [reports, setReports] = useState<ReadonlyMap<string, Report>>(new Map());
  const [titles, setTitles] = useState<ReadonlyMap<string, string>>(new Map());
  const [settings, setSettings] = useState(readSettings);
  const [searches, setSearches] = useState(0); // how often the search was asked for since it was closed
  const search = () => setSearches((n) => n + 1);
  const help = useId();
  const phone = useMedia("(pointer: coarse), (max-width: 639px)");
  const height = useVisibleHeight(phone);
  const [ctrl, setCtrl] = useState(false);
  const held = useRef(false); // the same, for keys that come before the next rendering
  const hold = (on: boolean) => {
    held.current = on;
    setCtrl(on);
  };
  const ids = all(tabs);
  const shown = current(tabs);
  // A terminal connects when its tab is first shown, and stays connected behind others.
  const visited = useRef(new Set<string>());
  for (const id of shown) visited.current.add(id);
  const commandOf = (id: string) => (id === first.id ? first.command : null);

  useEffect(() => {
    const url = new URL(location.href);
    write(tabs, url.searchParams);
    if (!all(tabs).includes(first.id!)) url.searchParams.delete("command");
    history.replaceState(history.state, "", url);
  }, [tabs, first]);

  const terminal = terminals.get(tabs.active);
  useEffect(() => terminal?.terminal.focus(), [terminal, tabs]);

  const link = new URL(location.pathname, location.origin);
  const command = commandOf(tabs.active);
  if (command) link.searchParams.set("command", command);
  link.searchParams.set("reconnect", tabs.active);
  const report = reports.get(tabs.active) ?? connecting;
  const typed = (data: string) => {
    const instead = held.current ? ctrlOf(data) : undefined;
    if (instead !== undefined) hold(false);
    return instead ?? data;
  };
  const press = (key: PhoneKey) => {
    const application = terminal?.terminal.modes.applicationCursorKeysMode ?? false;
    const keys = sequenceOf(key, { application, ctrl: held.current });
    hold(false);
    terminal?.terminal.input(keys);
  };
  const leave = () => {
    const inBar = (what: string) => bar.current?.querySelector<HTMLElement>(what);
    (inBar("[aria-current=true]") ?? inBar("button"))?.focus();
  };
  return (
    <div className="flex h-dvh flex-col" style={{ height }} data-terminal={report.state} data-region={report.region}>
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
        onOpen={ids.length < most ? (where) => setTabs(opened(tabs, newID(), where)) : undefined}
      >
        {ids.length > 1 && (
          <TerminalStrip
            tabs={tabs}
            titles={titles}
            onChoose={(id) => {
              setTabs(chosen(tabs, id));
              terminals.get(id)?.terminal.focus();
            }}
            onClose={(id) => setTabs(closed(tabs, id))}
          />
        )}
      </TerminalBar>
      <main className="flex min-h-0 flex-1 flex-col bg-white dark:bg-[#0a0d12]">
        {searches > 0 && terminal && (
          <TerminalSearch
            key={tabs.active}
            of={terminal}
            asked={searches}
            onClose={() => {
              setSearches(0);
              terminal.terminal.focus();
            }}
          />
        )}
        <div className="flex min-h-0 flex-1 flex-col sm:flex-row">
          {ids
            .filter((id) => visited.current.has(id))
            .map((id) => (
              <TerminalPane
                key={id}
                agent={agent}
                id={id}
                command={commandOf(id)}
                settings={settings}
                help={help}
                label={ids.length > 1 ? `Terminal ${ids.indexOf(id) + 1}` : "Terminal"}
                look={!shown.includes(id) ? "hidden" : shown.length === 1 ? "alone" : "beside"}
                onFocus={() => setTabs((now) => chosen(now, id))}
                onCommand={(what) => (what === "leave" ? leave() : search())}
                onOpened={(opened) => setTerminals((now) => changed(now, id, opened))}
                onTyped={typed}
                onTitle={(title) => setTitles((now) => changed(now, id, title))}
                onReport={(report) => {
                  setReports((now) => changed(now, id, report));
                  // A shell that has ended closes its terminal, unless there is more to read than its status.
                  if (report.state === "ended" && /^exit status \d+$/.test(report.reason))
                    setTabs((now) => closed(now, id));
                }}
              />
            ))}
        </div>
        {phone && <KeyRow ctrl={ctrl} onCtrl={hold} onKey={press} />}
      </main>
    </div>
  );
}

// changed is a map with another value of a key, or without the key.
function changed<V>(map: ReadonlyMap<string, V>, key: string, value: V | undefined): ReadonlyMap<string, V> {
  const next = new Map(map);
  if (value === undefined) next.delete(key);
  else next.set(key, value);
  return next;
}
