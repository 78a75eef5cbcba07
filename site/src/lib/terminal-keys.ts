// Keys in a terminal that are for the page. Terminals on every system keep Ctrl+Shift with a key for themselves,
// because no shell can tell it from Ctrl alone. Escape, Tab and all else reach the program in the terminal.
export type Command = "leave" | "search";

const commands: Record<string, Command> = { Enter: "leave", KeyF: "search" };

type Pressed = Pick<KeyboardEvent, "ctrlKey" | "shiftKey" | "altKey" | "metaKey" | "code">;

// commandOf returns what a key is for, if it is not for the program in the terminal.
export function commandOf(e: Pressed): Command | undefined {
  const ours = e.ctrlKey && e.shiftKey && !e.altKey && !e.metaKey;
  return ours && Object.hasOwn(commands, e.code) ? commands[e.code] : undefined;
}

// Keys that a phone's keyboard lacks.
export type PhoneKey = "Escape" | "Tab" | "Left" | "Up" | "Down" | "Right";

const arrows: Partial<Record<PhoneKey, string>> = { Up: "A", Down: "B", Right: "C", Left: "D" };

// sequenceOf returns what a terminal sends for a key, as xterm does. application: the program has asked for the arrows
// of the application mode.
export function sequenceOf(key: PhoneKey, held: { application: boolean; ctrl: boolean }): string {
  const arrow = arrows[key];
  if (!arrow) return key === "Tab" ? "\t" : "\x1b";
  if (held.ctrl) return `\x1b[1;5${arrow}`;
  return (held.application ? "\x1bO" : "\x1b[") + arrow;
}

// ctrlOf returns what a terminal sends for a typed text while Ctrl is held, and undefined for a text that holds it on:
// what the terminal itself answers to programs begins with an escape.
export function ctrlOf(text: string): string | undefined {
  if (text.length > 1 && text.startsWith("\x1b")) return undefined;
  if (text === "?") return "\x7f";
  if (text === " ") return "\0";
  return /^[@-_a-z]$/.test(text) ? String.fromCharCode(text.charCodeAt(0) & 0x1f) : text;
}
