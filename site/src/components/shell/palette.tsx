// The command palette: workspaces, templates, pages, actions and documentation by name, with the keyboard only. It
// follows the pattern of a combobox with a list: the focus stays in the input, which names the active option.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { useLocation } from "wouter";
import type { Action } from "~/api/actions";
import { queries } from "~/api/queries";
import type { Workspace } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { agentsOf } from "~/components/ui/status";
import { setTheme } from "~/components/ui/theme";
import { mayEditTemplates, useMe } from "~/components/ui/user";
import { ActionDialogs, asks, can, useWorkspaceActions } from "~/components/workspace/actions";
import { useDebounced } from "~/lib/hooks";
import { type Entry, found } from "~/lib/palette";
import { pathOf, paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

export interface PaletteProps {
  pages: { to: string; label: string }[];
  onHelp: () => void;
  onClose: () => void;
}

export default function Palette({ pages, onHelp, onClose }: PaletteProps) {
  const actions = useWorkspaceActions();
  const asked = useRef(false);
  useEffect(() => {
    // A question of the palette takes its place, and ends it.
    if (asked.current && !actions.asking) onClose();
    asked.current = actions.asking !== null;
  }, [actions.asking, onClose]);
  return actions.asking ? (
    <ActionDialogs actions={actions} />
  ) : (
    <Finder pages={pages} actions={actions} onHelp={onHelp} onClose={onClose} />
  );
}

function Finder({
  pages,
  actions,
  onHelp,
  onClose,
}: PaletteProps & { actions: ReturnType<typeof useWorkspaceActions> }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [search, setSearch] = useState("");
  const [active, setActive] = useState(0);
  const id = useId();
  const entries = found(useEntries(pages, actions, useDebounced(search, 150), onHelp), search);
  const at = Math.min(active, entries.length - 1);
  useEffect(() => {
    const before = document.activeElement;
    const page = location.pathname;
    dialog.current?.showModal();
    return () => {
      if (page === location.pathname && before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  useEffect(() => {
    document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: "nearest" });
  }, [id, at]);
  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    entry.run();
    if (!entry.asks) onClose();
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const last = entries.length - 1;
    const moves: Record<string, number> = {
      ArrowDown: at >= last ? 0 : at + 1,
      ArrowUp: at <= 0 ? last : at - 1,
      PageDown: Math.min(last, at + 8),
      PageUp: Math.max(0, at - 8),
    };
    const to = moves[e.key];
    if (to !== undefined) setActive(to);
    else if (e.key === "Enter" && !e.nativeEvent.isComposing) choose(entries[at]);
    else return;
    e.preventDefault();
  };
  return (
    <dialog
      ref={dialog}
      aria-label="Command palette"
      // At once, and not with the later close event: the key that opens it may follow.
      onCancel={(e) => {
        e.preventDefault();
        onClose();
      }}
      onClose={onClose}
      onMouseDown={(e) => e.target === dialog.current && onClose()}
      className={cx(
        "mx-auto mt-[12vh] w-[min(38rem,calc(100vw-1.5rem))] overflow-hidden",
        "rounded-lg border border-line bg-panel p-0 text-ink shadow-xl",
      )}
    >
      <input
        role="combobox"
        aria-label="Search workspaces, templates, actions and documentation"
        aria-expanded="true"
        aria-controls={id}
        aria-autocomplete="list"
        aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined}
        autoFocus
        autoComplete="off"
        spellCheck={false}
        placeholder="Search workspaces, templates, actions and documentation"
        value={search}
        onChange={(e) => {
          setSearch(e.target.value);
          setActive(0);
        }}
        onKeyDown={onKeyDown}
        className="h-12 w-full border-b border-line bg-transparent px-4 outline-none placeholder:text-muted"
      />
      <div id={id} role="listbox" aria-label="Results" className="max-h-[50vh] overflow-y-auto p-1">
        {entries.map((entry, i) => (
          <div key={entry.key} role="presentation">
            {entry.group !== entries[i - 1]?.group && (
              <div role="presentation" className="px-3 pt-2 pb-1 text-xs text-muted">
                {entry.group}
              </div>
            )}
            <div
              id={`${id}-${i}`}
              role="option"
              aria-selected={i === at}
              onMouseMove={() => setActive(i)}
              onClick={() => choose(entry)}
              className="flex min-h-9 cursor-pointer items-center gap-2 rounded px-3 aria-selected:bg-raised"
            >
              <span className="min-w-0 truncate">{entry.label}</span>
              {entry.hint && <span className="ml-auto shrink-0 truncate text-[13px] text-muted">{entry.hint}</span>}
            </div>
          </div>
        ))}
      </div>
      {entries.length === 0 && (
        <p role="status" className="px-4 pb-4 text-muted">
          No results
        </p>
      )}
    </dialog>
  );
}

function useEntries(
  pages: PaletteProps["pages"],
  { act, busy }: ReturnType<typeof useWorkspaceActions>,
  search: string,
  onHelp: () => void,
): Entry[] {
  const [, navigate] = useLocation();
  const me = useMe();
  const ref = useTemplateRef();
  const word =
    search
      .trim()
      .split(/[\s:"]+/)
      .at(-1) ?? "";
  const mine = useQuery(queries.workspaces("owner:me"));
  const others = useQuery({
    ...queries.workspaces(`name:"${word}"`),
    enabled: word !== "",
    placeholderData: keepPreviousData,
  });
  const templates = useQuery(queries.templates());
  const docs = useQuery({
    queryKey: ["docs"],
    queryFn: async () => (await import("~/lib/docs")).places(),
    enabled: word.length > 1,
    staleTime: Infinity,
  });
  const shown = new Map<string, Workspace>();
  for (const w of [...(mine.data?.workspaces ?? []), ...((word && others.data?.workspaces) || [])]) shown.set(w.id, w);
  const workspaces = [...shown.values()];
  return [
    ...workspaces.map((w) => ({
      key: w.id,
      group: "Workspaces",
      label: w.name,
      hint: `${w.owner_name} · ${w.latest_build.status}`,
      run: () => navigate(pathOf(w)),
    })),
    ...(templates.data ?? []).map((t) => ({
      key: t.id,
      group: "Templates",
      label: t.display_name || t.name,
      hint: "template",
      run: () => navigate(paths.template(ref(t))),
    })),
    ...pages.map((p) => ({ key: p.to, group: "Pages", label: p.label, hint: "page", run: () => navigate(p.to) })),
    { key: "account", group: "Pages", label: "Account and tokens", hint: "page", run: () => navigate(paths.account) },
    { key: "docs", group: "Pages", label: "Documentation", hint: "page", run: () => navigate(paths.docs()) },
    { key: "downloads", group: "Pages", label: "Downloads", hint: "page", run: () => navigate(paths.downloads) },
    ...workspaces.flatMap((w) => actionsOf(w, act, busy.has(w.id))),
    ...(templates.data ?? []).map((t) => ({
      key: `new:${t.id}`,
      group: "Actions",
      label: `New workspace from ${t.display_name || t.name}`,
      run: () => navigate(paths.create(ref(t))),
    })),
    ...(mayEditTemplates(me)
      ? [{ key: "template", group: "Actions", label: "New template", run: () => navigate(paths.newTemplate) }]
      : []),
    { key: "keys", group: "Actions", label: "Keyboard shortcuts", hint: "?", run: onHelp },
    ...(["light", "dark", "system"] as const).map((theme) => ({
      key: theme,
      group: "Actions",
      label: `Use the ${theme} theme`,
      run: () => setTheme(theme),
    })),
    ...((word.length > 1 && docs.data) || []).map((p) => ({
      key: p.to,
      group: "Documentation",
      label: p.heading || p.title,
      hint: p.heading ? p.title : "documentation",
      run: () => navigate(p.to),
    })),
  ];
}

function actionsOf(w: Workspace, act: ReturnType<typeof useWorkspaceActions>["act"], busy: boolean): Entry[] {
  const may = can(w, busy);
  const name = w.name;
  const agent = agentsOf(w.latest_build).find((a) => a.status === "connected");
  const entry = (label: string, run: () => void): Entry => ({
    key: `${label}:${w.id}`,
    group: "Actions",
    label: `${label} ${name}`,
    hint: w.owner_name,
    run,
  });
  const does = (label: string, action: Action): Entry => ({
    ...entry(label, () => act(w, action)),
    asks: asks(action),
  });
  return [
    ...(agent && w.permissions.connect && w.latest_build.status === "running"
      ? [entry("Terminal of", () => window.open(paths.terminal(w.owner_name, name, agent.name), "_blank", "noopener"))]
      : []),
    ...(may.build && may.wake ? [does("Wake", "wake")] : []),
    ...(may.build && may.start ? [does("Start", "start")] : []),
    ...(may.build && may.stop ? [does("Stop", "stop")] : []),
    ...(may.build && may.restart ? [does("Restart", "restart")] : []),
    ...(may.build && may.update ? [does("Update", "update")] : []),
  ];
}
