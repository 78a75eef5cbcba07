import { useSyncExternalStore } from "react";
import { send } from "~/api/client";
import type { Theme as Stored } from "~/api/types";

export type Theme = "light" | "dark" | "system";

const listeners = new Set<() => void>();
const system = matchMedia("(prefers-color-scheme: dark)");

function read(): Theme {
  try {
    const stored = localStorage.getItem("theme");
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system";
  }
}

function show() {
  const theme = read();
  document.documentElement.dataset["theme"] = theme === "system" ? (system.matches ? "dark" : "light") : theme;
  for (const listener of listeners) listener();
}

system.addEventListener("change", show);

function keep(theme: Theme) {
  try {
    if (theme === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", theme);
  } catch {
    // Without storage the choice holds for this page.
  }
  show();
}

let chosen = false; // on this page, so that an answer that is older does not undo it

// setTheme shows a theme, keeps it in the browser for the pages before sign-in, and stores it for the user's other
// browsers. Without a server the choice holds for this browser.
export function setTheme(theme: Theme) {
  chosen = true;
  keep(theme);
  void send("PUT users/{user}/appearance", {
    user: "me",
    body: { theme_preference: theme === "system" ? "auto" : theme },
  }).catch(() => {});
}

// adoptTheme shows the theme that the user has chosen in any browser. If there is none, the choice of this browser is
// stored.
export function adoptTheme(stored: Stored | undefined) {
  if (chosen || stored === undefined) return;
  if (stored) keep(stored === "auto" ? "system" : stored);
  else if (read() !== "system") setTheme(read());
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useTheme = () => useSyncExternalStore(subscribe, read);

// useDark reports whether the page is dark, by the user's choice or the system's.
export const useDark = () =>
  useSyncExternalStore(subscribe, () => document.documentElement.dataset["theme"] === "dark");
