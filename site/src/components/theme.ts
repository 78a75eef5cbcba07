import { useSyncExternalStore } from "react";

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

export function setTheme(theme: Theme) {
  try {
    if (theme === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", theme);
  } catch {
    // Without storage the choice holds for this page.
  }
  show();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useTheme = () => useSyncExternalStore(subscribe, read);

// useDark reports whether the page is dark, by the user's choice or the system's.
export const useDark = () =>
  useSyncExternalStore(subscribe, () => document.documentElement.dataset["theme"] === "dark");
