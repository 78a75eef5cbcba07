// A terminal in the browser: the nearest region proxy's node, or the server's, carries it over the mesh to the agent. A
// reload, a lost connection or a restarted server finds the same session again.
import { useQuery } from "@tanstack/react-query";
import type { Terminal } from "@xterm/xterm";
import { useEffect, useRef, useState } from "react";
import { gone, queries } from "~/api/queries";
import type { WorkspaceAgent } from "~/api/types";
import { agentNamed } from "~/components/status";
import { useDark } from "~/components/theme";
import { Empty, LinkButton, Loading, Pending } from "~/components/ui";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { attach, openTerminal, type State, themeOf } from "~/lib/terminal";

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
  return <Session key={found.id} agent={found} />;
}

function Session({ agent }: { agent: WorkspaceAgent }) {
  const place = useRef<HTMLDivElement>(null);
  const shown = useRef<Terminal>(null);
  const again = useRef<() => void>(() => {});
  const [{ state, reason, region }, setState] = useState<{ state: State; reason: string; region: string }>({
    state: "connecting",
    reason: "",
    region: "",
  });
  const isDark = useDark();
  const font = useQuery(queries.userAppearance()).data?.terminal_font ?? "";
  const setFont = useRef<(choice: string) => void>(() => {});

  useEffect(() => {
    const { terminal, setFont: change, close } = openTerminal(place.current!);
    const session = attach(terminal, agent.id, (state, reason, region) =>
      setState((old) =>
        old.state === state && old.reason === reason && old.region === region ? old : { state, reason, region },
      ),
    );
    shown.current = terminal;
    again.current = session.again;
    setFont.current = change;
    return () => {
      session.close();
      close();
    };
  }, [agent.id]);

  useEffect(() => {
    if (shown.current) shown.current.options.theme = themeOf(isDark);
  }, [isDark]);

  useEffect(() => setFont.current(font), [font, agent.id]);

  const waits = state === "connecting" && agent.status !== "connected";
  return (
    <main className="flex h-dvh flex-col bg-white dark:bg-[#0a0d12]" data-terminal={state} data-region={region}>
      <h1 className="sr-only">Terminal</h1>
      {(state === "lost" || state === "ended" || waits) && (
        <div role="status" className="flex flex-wrap items-center gap-3 bg-warn-soft px-3 py-1.5 text-warn">
          {state === "ended" && "The session has ended."}
          {state === "lost" &&
            `Connection lost${reason && ` (${reason})`}. Reconnecting… Your session is still running in the workspace.`}
          {waits && "Waiting for the agent to connect…"}
          {!waits && (
            <button type="button" className="underline" onClick={() => again.current()}>
              {state === "ended" ? "Open a new session" : "Reconnect now"}
            </button>
          )}
        </div>
      )}
      <div ref={place} className="min-h-0 flex-1 p-1" />
    </main>
  );
}
