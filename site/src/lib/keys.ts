// Shortcuts of a single key. Users of speech input can turn them off, because what they dictate may contain the keys.

const stored = "single-keys-off";

export const singleKeys = () => localStorage.getItem(stored) === null;

export function keepSingleKeys(on: boolean) {
  if (on) localStorage.removeItem(stored);
  else localStorage.setItem(stored, "1");
}

// typing reports whether a key belongs to what has the focus, which may be in a shadow root.
const typing = (target: EventTarget | undefined) =>
  target instanceof Element && target.closest("input, textarea, select, [contenteditable], [role=menu]") !== null;

export const dialogIsOpen = () => document.querySelector("dialog[open]") !== null;

// shortcutOf returns what a key is for, if it is for the page.
export function shortcutOf(e: KeyboardEvent): "palette" | "search" | "help" | undefined {
  if ((e.ctrlKey || e.metaKey) && !e.shiftKey && !e.altKey && e.key.toLowerCase() === "k") return "palette";
  if (e.ctrlKey || e.metaKey || e.altKey || typing(e.composedPath()[0]) || dialogIsOpen() || !singleKeys())
    return undefined;
  return e.key === "/" ? "search" : e.key === "?" ? "help" : undefined;
}
