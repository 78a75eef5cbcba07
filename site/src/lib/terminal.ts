// A terminal on a page, and the session that it shows: a websocket that reconnects to the session whose id is in the
// page's address.
import { FitAddon } from "@xterm/addon-fit";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { retryDelay, send, socket } from "~/api/client";
import type { TerminalTokenResponse } from "~/api/types";
import type { Region } from "./region";
import { terminalPlace } from "./regions";

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

// openTerminal draws a terminal in place. close removes it.
export function openTerminal(place: HTMLElement): {
  terminal: Terminal;
  setFont: (choice: string) => void;
  close: () => void;
} {
  const terminal = new Terminal({
    allowProposedApi: true,
    cursorBlink: true,
    scrollback: 10_000,
    fontSize: 14,
    fontFamily: familyOf(),
    macOptionIsMeta: true,
    screenReaderMode: false,
  });
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
  terminal.attachCustomKeyEventHandler((event) => !copies(event, terminal));
  terminal.open(place);
  fit.fit();
  terminal.focus();
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(place);
  const close = () => {
    observer.disconnect();
    terminal.dispose();
  };
  const setFont = (choice: string) => {
    terminal.options.fontFamily = familyOf(choice);
    fit.fit(); // letters of another width
  };
  return { terminal, setFont, close };
}

// copies handles Ctrl+Shift+C as other terminals do. The browser's own Ctrl+V pastes.
function copies(event: KeyboardEvent, terminal: Terminal): boolean {
  const pressed = event.type === "keydown" && event.ctrlKey && event.shiftKey && event.code === "KeyC";
  if (!pressed || !terminal.hasSelection()) return false;
  event.preventDefault();
  void navigator.clipboard?.writeText(terminal.getSelection());
  return true;
}

// sessionOf is the id of this page's session. It is in the address, so that each tab has its own.
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

export type State = "connecting" | "open" | "lost" | "ended";

const regionTimeout = 3000; // ms, until a region has opened a terminal

// regionSocket opens a terminal's websocket at a region, with a token that the server signs for it.
async function regionSocket(region: Region, agent: string, query: URLSearchParams): Promise<WebSocket> {
  const url = new URL(`${region.url}/api/v2/workspaceagents/${agent}/pty`);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const answer = await send<TerminalTokenResponse>("POST", "applications/reconnecting-pty-signed-token", {
    agentID: agent,
    url: url.href,
  });
  url.search = new URLSearchParams([...query, ["coder_terminal_token", answer.signed_token]]).toString();
  return new WebSocket(url);
}

// attach connects a terminal to the session of this page with an agent, and reconnects until it ends. If a region does
// not open it, the server does at once. show is told of each state, with the reason of a lost connection and the region
// in use. again connects at once, to a new session if the old one has ended.
export function attach(
  terminal: Terminal,
  agent: string,
  show: (state: State, reason: string, region: string) => void,
): { again: () => void; close: () => void } {
  const id = sessionOf();
  const command = new URLSearchParams(location.search).get("command");
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
      : socket(`workspaceagents/${agent}/pty?${query}`);
    if (closed || mine !== attempt) return opened?.close();
    if (!opened) return connect(true);
    const now = opened;
    ws = now;
    now.binaryType = "arraybuffer";
    let fresh = true;
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
      if (closed || ws !== now) return;
      if (event.code === 1000) return show("ended", event.reason, "");
      if (region && fresh) return leave();
      show("lost", event.reason, "");
      timer = setTimeout(connect, retryDelay(tries++));
    };
  };
  const listening = [
    terminal.onData((data) => say({ data })),
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
