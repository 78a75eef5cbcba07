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
