// A terminal on a page, and the session that it shows: a websocket that reconnects to the session whose id is in the
// page's address.
import { FitAddon } from "@xterm/addon-fit";
import { type ISearchDecorationOptions, SearchAddon } from "@xterm/addon-search";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type IDisposable, type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { address, get, retryDelay, send, socket } from "~/api/client";
import type { Region } from "./region";
import { terminalPlace } from "./regions";
import { type Command, commandOf } from "./terminal-keys";
import type { Settings } from "./terminal-settings";

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

export const themeOf = (isDark: boolean) => (isDark ? dark : light);

const families: Record<string, string> = {
  "fira-code": "Fira Code",
  "ibm-plex-mono": "IBM Plex Mono",
  "jetbrains-mono": "JetBrains Mono",
  "source-code-pro": "Source Code Pro",
};

// familyOf returns the fonts to try for a user's choice: the chosen one if this computer has it, then the page's.
function familyOf(choice = ""): string {
  const usual = getComputedStyle(document.body).getPropertyValue("--font-mono") || "monospace";
  const family = Object.hasOwn(families, choice) && families[choice];
  return family ? `"${family}", ${usual}` : usual;
}

export interface Matches {
  at: number; // from 1; 0 if there are none, or too many to count
  of: number;
}

export interface Opened {
  terminal: Terminal;
  setFont: (choice: string) => void;
  setSettings: (settings: Settings) => void;
  // find goes to the next match of a text, or the one before; typing: of a text that is still being typed.
  find: (text: string, direction: "next" | "previous" | "typing") => void;
  onMatches: (listener: (matches: Matches) => void) => IDisposable;
  close: () => void;
}

// Marks of matches: the terminal's own colours are unreadable on a mark of one colour in both themes.
const marks = (isDark: boolean): ISearchDecorationOptions => ({
  matchBackground: isDark ? "#4a3f12" : "#fff0b3",
  matchOverviewRuler: isDark ? "#b8962e" : "#b78900",
  activeMatchBackground: isDark ? "#7a5c00" : "#ffd24d",
  activeMatchBorder: isDark ? "#f2b45c" : "#8f5600",
  activeMatchColorOverviewRuler: isDark ? "#f2b45c" : "#8f5600",
});

// openTerminal draws a terminal in place. help is the id of the text that tells screen readers the way out, and command
// is told of keys that are for the page. close removes the terminal.
export function openTerminal(
  place: HTMLElement,
  settings: Settings,
  help: string,
  command: (what: Command) => void,
): Opened {
  const terminal = new Terminal({
    allowProposedApi: true,
    cursorBlink: true,
    scrollback: 10_000,
    fontSize: settings.size,
    fontFamily: familyOf(),
    macOptionIsMeta: true,
    screenReaderMode: settings.reader,
  });
  const fit = new FitAddon();
  const search = new SearchAddon();
  terminal.loadAddon(fit);
  terminal.loadAddon(search);
  terminal.loadAddon(new Unicode11Addon());
  terminal.unicode.activeVersion = "11";
  terminal.loadAddon(
    new WebLinksAddon((event, uri) => {
      event.preventDefault();
      window.open(uri, "_blank", "noopener,noreferrer");
    }),
  );
  terminal.attachCustomKeyEventHandler((event) => {
    const what = commandOf(event);
    if (!what) return !copies(event, terminal);
    event.preventDefault();
    if (event.type === "keydown") command(what);
    return false;
  });
  terminal.open(place);
  terminal.textarea?.setAttribute("aria-describedby", help);
  // A terminal that is hidden keeps its size, and its program need not draw for another.
  const fits = () => place.clientWidth > 0 && fit.fit();
  fits();
  const observer = new ResizeObserver(fits);
  observer.observe(place);
  return {
    terminal,
    setFont: (choice) => {
      terminal.options.fontFamily = familyOf(choice);
      fits(); // letters of another width
    },
    setSettings: ({ size, reader }) => {
      terminal.options.fontSize = size;
      terminal.options.screenReaderMode = reader;
      fits();
    },
    find: (text, direction) => {
      if (!text) return search.clearDecorations();
      const decorations = marks(terminal.options.theme?.background === dark.background);
      if (direction === "previous") search.findPrevious(text, { decorations });
      else search.findNext(text, { decorations, incremental: direction === "typing" });
    },
    onMatches: (listener) =>
      search.onDidChangeResults((found) => listener({ at: found.resultIndex + 1, of: found.resultCount })),
    close: () => {
      observer.disconnect();
      terminal.dispose();
    },
  };
}

// copies handles Ctrl+Shift+C as other terminals do. The browser's own Ctrl+V pastes.
function copies(event: KeyboardEvent, terminal: Terminal): boolean {
  const pressed = event.type === "keydown" && event.ctrlKey && event.shiftKey && event.code === "KeyC";
  if (!pressed || !terminal.hasSelection()) return false;
  event.preventDefault();
  void navigator.clipboard?.writeText(terminal.getSelection());
  return true;
}

export interface Session {
  agent: string;
  id: string; // the same one reopens the same shell
  command: string | null; // what to run in place of a shell, if the session is new
}

export interface Report {
  state: "connecting" | "open" | "lost" | "ended";
  reason: string; // of a lost connection
  region: string; // in use; empty: the server
  seen: boolean; // the session has been open on this page
}

const regionTimeout = 3000; // ms, until a region has opened a terminal
const patience = 3000; // ms, until the page asks why a terminal does not open

const ptyOf = (agent: string) => address("GET workspaceagents/{workspaceagent}/pty", { workspaceagent: agent });

// regionSocket opens a terminal's websocket at a region, with a token that the server signs for it.
async function regionSocket(region: Region, agent: string, query: URLSearchParams): Promise<WebSocket> {
  const url = new URL(region.url + ptyOf(agent));
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const answer = await send("POST applications/reconnecting-pty-signed-token", {
    body: { agentID: agent, url: url.href },
  });
  url.search = new URLSearchParams([...query, ["coder_terminal_token", answer.signed_token]]).toString();
  return new WebSocket(url);
}

// attach connects a terminal to a session, and reconnects until it ends. If a region does not open it, the server does
// at once. report is told of changes only. again connects at once, to a new session if the old one has ended.
export function attach(
  terminal: Terminal,
  { agent, id, command }: Session,
  report: (now: Report) => void,
  typed: (data: string) => string, // what to send for what the user types
): { again: () => void; close: () => void } {
  let last: Report | undefined;
  let seen = false;
  const show = (state: Report["state"], reason: string, region: string) => {
    if (last?.state === state && last.reason === reason && last.region === region) return;
    if (state === "open" || state === "ended") seen = state === "open";
    last = { state, reason, region, seen };
    report(last);
  };
  let ws: WebSocket | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let tries = 0;
  let attempt = 0;
  let closed = false;
  const say = (message: object) => ws?.readyState === WebSocket.OPEN && ws.send(JSON.stringify(message));

  const connect = async (skipRegions = false) => {
    clearTimeout(timer);
    const mine = ++attempt;
    const region = skipRegions ? null : await terminalPlace().catch(() => null);
    const query = new URLSearchParams({ reconnect: id, height: String(terminal.rows), width: String(terminal.cols) });
    if (command) query.set("command", command);
    const opened = region
      ? await regionSocket(region, agent, query).catch(() => null)
      : socket(`${ptyOf(agent)}?${query}`);
    if (closed || mine !== attempt) return opened?.close();
    if (!opened) return connect(true);
    const now = opened;
    ws = now;
    now.binaryType = "arraybuffer";
    let fresh = true;
    // What keeps a terminal from opening is the answer to its request, which browsers show to no page: ask.
    const explain = async () => {
      if (region) return;
      const at = await get("workspaceagents/{workspaceagent}/connection", { workspaceagent: agent }).catch(
        () => undefined,
      );
      if (!at?.unreachable_server || closed || mine !== attempt || !fresh) return;
      const [here, there] = [at.server, at.unreachable_server].map((server) => server!.slice(0, 8));
      const reason = `the server ${here} cannot reach the server ${there}, to which the agent is connected`;
      show(last?.state === "lost" ? "lost" : "connecting", reason, "");
    };
    const slow = setTimeout(() => void explain(), patience);
    const late = region && setTimeout(() => fresh && now.readyState === WebSocket.CONNECTING && leave(), regionTimeout);
    const leave = () => {
      ws = undefined;
      now.close();
      void connect(true);
    };
    now.onopen = () => say({ height: terminal.rows, width: terminal.cols });
    now.onmessage = (event: MessageEvent<ArrayBuffer | string>) => {
      // The session redraws its screen for each new connection.
      if (fresh) terminal.reset();
      fresh = false;
      tries = 0;
      show("open", "", region?.name ?? "");
      terminal.write(typeof event.data === "string" ? event.data : new Uint8Array(event.data));
    };
    now.onclose = (event) => {
      clearTimeout(late ?? undefined);
      clearTimeout(slow);
      if (closed || ws !== now) return;
      if (event.code === 1000) return show("ended", event.reason, "");
      if (region && fresh) return leave();
      show("lost", event.reason || (fresh && last?.state === "lost" ? last.reason : ""), "");
      if (fresh && !event.reason) void explain();
      timer = setTimeout(connect, retryDelay(tries++));
    };
  };
  const listening = [
    terminal.onData((data) => say({ data: typed(data) })),
    terminal.onBinary((data) => say({ data })),
    terminal.onResize(({ rows, cols }) => say({ height: rows, width: cols })),
  ];
  void connect();
  return {
    again: () => {
      tries = 0;
      show("connecting", "", "");
      void connect();
    },
    close: () => {
      closed = true;
      clearTimeout(timer);
      for (const l of listening) l.dispose();
      ws?.close();
    },
  };
}
