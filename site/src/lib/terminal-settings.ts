// How terminals look and read in this browser. The server does not know: a phone and a desk want other sizes.
const sizeKey = "terminal-font-size";
const readerKey = "terminal-screen-reader";

export const usualSize = 14; // px
const smallest = 8;
const largest = 32;

export interface Settings {
  size: number; // of the font, in px
  reader: boolean; // xterm.js keeps a copy of the screen as text for screen readers
}

const clamp = (size: number) => Math.min(largest, Math.max(smallest, size));

export function readSettings(): Settings {
  try {
    const size = Math.round(Number(localStorage.getItem(sizeKey) ?? usualSize));
    return { size: size ? clamp(size) : usualSize, reader: localStorage.getItem(readerKey) === "1" };
  } catch {
    return { size: usualSize, reader: false };
  }
}

// keepSettings returns the settings that are kept: the size has limits.
export function keepSettings(wanted: Settings): Settings {
  const kept = { ...wanted, size: clamp(wanted.size) };
  try {
    if (kept.size === usualSize) localStorage.removeItem(sizeKey);
    else localStorage.setItem(sizeKey, String(kept.size));
    if (kept.reader) localStorage.setItem(readerKey, "1");
    else localStorage.removeItem(readerKey);
  } catch {
    // Without storage the settings hold for this page.
  }
  return kept;
}
