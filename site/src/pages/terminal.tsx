// A terminal in the browser: the server's node carries it over the mesh to the agent. The session has an id in the
// page's address, so that a reload, a lost connection or a restarted server finds it again.
import { useQuery } from "@tanstack/react-query";
import { FitAddon } from "@xterm/addon-fit";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ITheme, Terminal as XTerm } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef, useState } from "react";
import { retryDelay, socket } from "~/api/client";
import { gone, queries } from "~/api/queries";
import type { WorkspaceAgent } from "~/api/types";
import { agentsOf } from "~/components/status";
import { useDark } from "~/components/theme";
import { Empty, ErrorNote, LinkButton, Loading } from "~/components/ui";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

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
      <Empty title="Workspace not found" action={<LinkButton href={paths.workspaces}>Your workspaces</LinkButton>} />
    );
  if (!workspace.data)
    return workspace.error ? (
      <div className="p-4">
        <ErrorNote error={workspace.error} />
      </div>
    ) : (
      <Loading what="terminal" />
    );
  const { latest_build: build } = workspace.data;
  const found = agentsOf(build).find((a) => !agent || a.name === agent);
  if (build.transition !== "start")
    return (
      <Empty title="The workspace is not running" action={back}>
        Start it to open a terminal.
      </Empty>
    );
  if (!found)
    return build.job.completed_at ? (
      <Empty title={agent ? `Agent ${agent} not found` : "The workspace has no agent"} action={back} />
    ) : (
      <Loading what="agent" />
    );
  return <Session key={found.id} agent={found} />;
}

const light: ITheme = {
  background: "#ffffff",
  foreground: "#171c26",
  cursor: "#3c4dc4",
  cursorAccent: "#ffffff",
  selectionBackground: "#c9d0f7",
  black: "#171c26",
  white: "#566073",
  brightWhite: "#171c26",
  yellow: "#8f5600",
  brightYellow: "#8f5600",
  green: "#147a3d",
  brightGreen: "#147a3d",
  cyan: "#0b6e7d",
  brightCyan: "#0b6e7d",
  red: "#b91c1c",
  blue: "#2a49c9",
  magenta: "#8a2aa8",
};
const dark: ITheme = {
  background: "#0a0d12",
  foreground: "#dce2ec",
  cursor: "#9aa8ff",
  cursorAccent: "#0a0d12",
  selectionBackground: "#37406f",
};

// sessionOf is the id of this page's session. It is in the address, so that it is this tab's own.
function sessionOf(): string {
  const url = new URL(location.href);
  const known = url.searchParams.get("reconnect");
  if (known && /^[0-9a-f-]{36}$/.test(known)) return known;
  // Pages without TLS have no randomUUID.
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6]! & 0x0f) | 0x40;
  b[8] = (b[8]! & 0x3f) | 0x80;
  const hex = [...b].map((x) => x.toString(16).padStart(2, "0")).join("");
  const id = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
  url.searchParams.set("reconnect", id);
  history.replaceState(history.state, "", url);
  return id;
}

type State = "connecting" | "open" | "lost" | "ended";

function Session({ agent }: { agent: WorkspaceAgent }) {
  const place = useRef<HTMLDivElement>(null);
  const term = useRef<XTerm>(null);
  const again = useRef<() => void>(() => {});
  const [state, setState] = useState<State>("connecting");
  const [reason, setReason] = useState("");
  const isDark = useDark();

  useEffect(() => {
    const terminal = new XTerm({
      allowProposedApi: true,
      cursorBlink: true,
      scrollback: 10_000,
      fontSize: 14,
      fontFamily: getComputedStyle(document.body).getPropertyValue("--font-mono") || "monospace",
      macOptionIsMeta: true,
      screenReaderMode: false,
    });
    term.current = terminal;
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.loadAddon(new Unicode11Addon());
    terminal.unicode.activeVersion = "11";
    terminal.loadAddon(
      new WebLinksAddon((event, uri) => {
        event.preventDefault();
        window.open(uri, "_blank", "noopener,noreferrer");
      }),
    );
    terminal.open(place.current!);
    fit.fit();
    terminal.focus();

    const id = sessionOf();
    const command = new URLSearchParams(location.search).get("command");
    let ws: WebSocket | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let tries = 0;
    let closed = false;
    const say = (message: object) => ws?.readyState === WebSocket.OPEN && ws.send(JSON.stringify(message));

    const connect = () => {
      clearTimeout(timer);
      const query = new URLSearchParams({ reconnect: id, height: String(terminal.rows), width: String(terminal.cols) });
      if (command) query.set("command", command);
      const now = socket(`workspaceagents/${agent.id}/pty?${query}`);
      ws = now;
      now.binaryType = "arraybuffer";
      let fresh = true;
      now.onopen = () => {
        say({ height: terminal.rows, width: terminal.cols });
      };
      now.onmessage = (event: MessageEvent<ArrayBuffer | string>) => {
        // The session redraws its screen for each new connection.
        if (fresh) terminal.reset();
        fresh = false;
        tries = 0;
        setState("open");
        terminal.write(typeof event.data === "string" ? event.data : new Uint8Array(event.data));
      };
      now.onclose = (event) => {
        if (closed || ws !== now) return;
        setReason(event.reason);
        if (event.code === 1000) return setState("ended");
        setState("lost");
        timer = setTimeout(connect, retryDelay(tries++));
      };
    };
    again.current = () => {
      tries = 0;
      setState("connecting");
      connect();
    };
    connect();

    const typed = terminal.onData((data) => say({ data }));
    const raw = terminal.onBinary((data) => say({ data }));
    const resized = terminal.onResize(({ rows, cols }) => say({ height: rows, width: cols }));
    // Copy and paste as other terminals have it; the browser's own Ctrl+V works too.
    terminal.attachCustomKeyEventHandler((event) => {
      if (
        event.type === "keydown" &&
        event.ctrlKey &&
        event.shiftKey &&
        event.code === "KeyC" &&
        terminal.hasSelection()
      ) {
        event.preventDefault();
        void navigator.clipboard?.writeText(terminal.getSelection());
        return false;
      }
      return true;
    });
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(place.current!);
    return () => {
      closed = true;
      clearTimeout(timer);
      observer.disconnect();
      for (const d of [typed, raw, resized]) d.dispose();
      ws?.close();
      terminal.dispose();
    };
  }, [agent.id]);

  useEffect(() => {
    if (term.current) term.current.options.theme = isDark ? dark : light;
  }, [isDark]);

  return (
    <main className="flex h-dvh flex-col bg-white dark:bg-[#0a0d12]" data-terminal={state}>
      <h1 className="sr-only">Terminal</h1>
      {(state === "lost" || state === "ended" || (state === "connecting" && agent.status !== "connected")) && (
        <div role="status" className="flex flex-wrap items-center gap-3 bg-warn-soft px-3 py-1.5 text-warn">
          {state === "ended"
            ? "The session has ended."
            : state === "lost"
              ? `The connection was lost${reason ? ` (${reason})` : ""}. Reconnecting… The session keeps running in the workspace.`
              : "Waiting for the agent."}
          {state !== "connecting" && (
            <button type="button" className="underline" onClick={() => again.current()}>
              {state === "ended" ? "Open another" : "Try now"}
            </button>
          )}
        </div>
      )}
      <div ref={place} className="min-h-0 flex-1 p-1" />
    </main>
  );
}
