// The bar above terminals: whose they are, how they are connected, and what to do with them.
import { Accessibility, AArrowDown, AArrowUp, Columns2, Keyboard, Plus, Search } from "lucide-react";
import { lazy, type ReactNode, type RefObject, Suspense, useEffect, useState } from "react";
import { Link } from "wouter";
import { CopyButton } from "~/components/ui/copy";
import { cx } from "~/components/ui/cx";
import { IconButton } from "~/components/ui/icon-button";
import { shortcutOf } from "~/lib/keys";
import { paths } from "~/lib/path";
import type { Report } from "~/lib/terminal";
import { keepSettings, type Settings } from "~/lib/terminal-settings";

const Shortcuts = lazy(() => import("~/components/ui/shortcuts"));

const states: Record<Report["state"], [text: string, dot: string]> = {
  connecting: ["Connecting…", "bg-edge"],
  open: ["Connected", "bg-ok"],
  lost: ["Reconnecting…", "bg-warn"],
  ended: ["Ended", "bg-edge"],
};

interface Props {
  bar: RefObject<HTMLElement | null>;
  owner: string;
  name: string;
  agent: string;
  report: Report;
  link: string; // the address of this terminal
  help: string;
  settings: Settings;
  children: ReactNode; // below
  onSettings: (settings: Settings) => void;
  onSearch: () => void;
  onOpen: ((where: "tab" | "beside") => void) | undefined; // a terminal more; undefined: there are as many as can be
}

export function TerminalBar(p: Props) {
  const [text, dot] = states[p.report.state];
  const [helps, setHelps] = useState(false);
  useEffect(() => {
    const pressed = (e: KeyboardEvent) => {
      if (shortcutOf(e) !== "help") return;
      e.preventDefault();
      setHelps(true);
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
  const set = (change: Partial<Settings>) => p.onSettings(keepSettings({ ...p.settings, ...change }));
  return (
    <header
      ref={p.bar}
      className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line bg-panel px-2 py-1 text-ink"
    >
      <h1 className="min-w-0 truncate font-medium">
        <span className="sr-only">Terminal of </span>
        <Link href={paths.workspace(p.owner, p.name)} className="hover:underline">
          {p.name}
          <span className="text-muted">.{p.agent}</span>
        </Link>
      </h1>
      <p role="status" className="flex items-center gap-1.5 text-muted">
        <span aria-hidden className={cx("size-2 rounded-full", dot)} />
        {text}
        {p.report.region && ` through ${p.report.region}`}
      </p>
      <p id={p.help} className="ml-auto text-xs text-muted max-lg:sr-only">
        Ctrl+Shift+Enter leaves the terminal for this bar
      </p>
      <div role="group" aria-label="Terminal" className="flex flex-wrap items-center max-lg:ml-auto">
        <IconButton label="New tab" disabled={!p.onOpen} onClick={() => p.onOpen?.("tab")}>
          <Plus />
        </IconButton>
        <IconButton label="Split" disabled={!p.onOpen} onClick={() => p.onOpen?.("beside")}>
          <Columns2 />
        </IconButton>
        <IconButton label="Search (Ctrl+Shift+F)" onClick={p.onSearch}>
          <Search />
        </IconButton>
        <IconButton label="Smaller text" onClick={() => set({ size: p.settings.size - 1 })}>
          <AArrowDown />
        </IconButton>
        <IconButton label="Larger text" onClick={() => set({ size: p.settings.size + 1 })}>
          <AArrowUp />
        </IconButton>
        <IconButton
          label="Screen-reader mode"
          aria-pressed={p.settings.reader}
          className="aria-pressed:bg-accent-soft aria-pressed:text-accent"
          onClick={() => set({ reader: !p.settings.reader })}
        >
          <Accessibility />
        </IconButton>
        <CopyButton text={p.link} label="Copy the link to this terminal" />
        <IconButton label="Keyboard shortcuts (?)" onClick={() => setHelps(true)}>
          <Keyboard />
        </IconButton>
      </div>
      {p.children}
      {helps && (
        <Suspense>
          <Shortcuts onClose={() => setHelps(false)} />
        </Suspense>
      )}
    </header>
  );
}
