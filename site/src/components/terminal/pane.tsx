// One terminal: what a session shows, and why it does not while it is away.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { queries } from "~/api/queries";
import type { WorkspaceAgent } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { useDark } from "~/components/ui/theme";
import { attach, type Opened, openTerminal, type Report, themeOf } from "~/lib/terminal";
import type { Command } from "~/lib/terminal-keys";
import type { Settings } from "~/lib/terminal-settings";

interface Props {
  agent: WorkspaceAgent;
  id: string; // of the session
  command: string | null;
  settings: Settings;
  label: string;
  look: "alone" | "beside" | "hidden"; // beside others in its tab, or in a tab behind
  help: string; // the id of the text that tells the way out
  onCommand: (what: Command) => void;
  onOpened: (opened: Opened | undefined) => void;
  onTitle: (title: string) => void; // that the program sets
  onReport: (report: Report) => void;
  onTyped: (data: string) => string; // what to send for it
  onFocus: () => void;
}

const longestTitle = 100; // characters: programs can set any

export const connecting: Report = { state: "connecting", reason: "", region: "", seen: false };

export function TerminalPane(p: Props) {
  const { agent, id, settings, help } = p;
  const place = useRef<HTMLDivElement>(null);
  const opened = useRef<Opened>(null);
  const again = useRef<() => void>(() => {});
  const [{ state, reason, seen }, setReport] = useState(connecting);
  const isDark = useDark();
  const font = useQuery(queries.userAppearance()).data?.terminal_font ?? "";
  // Of the last rendering: a terminal outlives those, and is opened once for its session.
  const now = useRef(p);
  now.current = p;

  useEffect(() => {
    const terminal = openTerminal(place.current!, now.current.settings, help, (what) => now.current.onCommand(what));
    const session = attach(
      terminal.terminal,
      { agent: agent.id, id, command: now.current.command },
      (next) => {
        setReport(next);
        now.current.onReport(next);
      },
      (data) => now.current.onTyped(data),
    );
    terminal.terminal.onTitleChange((title) => now.current.onTitle(title.slice(0, longestTitle)));
    opened.current = terminal;
    again.current = session.again;
    now.current.onOpened(terminal);
    return () => {
      now.current.onOpened(undefined);
      session.close();
      terminal.close();
    };
  }, [agent.id, id, help]);

  useEffect(() => {
    if (opened.current) opened.current.terminal.options.theme = themeOf(isDark);
  }, [isDark, agent.id, id]);
  useEffect(() => opened.current?.setFont(font), [font, agent.id, id]);
  useEffect(() => opened.current?.setSettings(settings), [settings, agent.id, id]);

  const waits = state === "connecting" && (agent.status !== "connected" || reason !== "");
  return (
    <section
      aria-label={p.label}
      onFocus={p.onFocus}
      className={cx(
        "min-h-0 min-w-0 flex-1 flex-col",
        p.look === "hidden" ? "hidden" : "flex",
        p.look === "beside" && "border border-line focus-within:border-accent",
      )}
    >
      {(state === "lost" || state === "ended" || waits) && (
        <div role="status" className="flex flex-wrap items-center gap-3 bg-warn-soft px-3 py-1.5 text-warn">
          {state === "ended" && "The session has ended."}
          {state === "lost" &&
            `${seen ? "Connection lost" : "Cannot connect"}${reason && ` (${reason})`}. Reconnecting…`}
          {state === "lost" && seen && "Your session is still running in the workspace."}
          {waits && (reason ? `Waiting for a connection: ${reason}.` : "Waiting for the agent to connect…")}
          {!waits && (
            <button type="button" className="underline" onClick={() => again.current()}>
              {state === "ended" ? "Open a new session" : "Reconnect now"}
            </button>
          )}
        </div>
      )}
      <div ref={place} className="min-h-0 flex-1 overflow-hidden p-1" />
    </section>
  );
}
