// The terminals of a page, by tabs. Terminals side by side in one tab are joined.
import { X } from "lucide-react";
import { cx } from "~/components/ui/cx";
import { all, current, type Tabs } from "~/lib/terminal-tabs";

interface Props {
  tabs: Tabs;
  titles: ReadonlyMap<string, string>;
  onChoose: (id: string) => void;
  onClose: (id: string) => void;
}

export function TerminalStrip({ tabs, titles, onChoose, onClose }: Props) {
  const shown = current(tabs);
  const ids = all(tabs);
  return (
    <ul aria-label="Terminals" className="flex basis-full gap-1 overflow-x-auto">
      {tabs.tabs.map((tab) =>
        tab.map((id, at) => {
          const number = ids.indexOf(id) + 1;
          const title = titles.get(id) ?? "";
          return (
            <li
              key={id}
              className={cx(
                "flex max-w-60 min-w-0 shrink-0 items-center border border-line",
                at === 0 ? "rounded-l-md" : "-ml-[5px]",
                at === tab.length - 1 && "rounded-r-md",
                shown.includes(id) ? "bg-raised" : "text-muted",
              )}
            >
              <button
                type="button"
                aria-current={id === tabs.active}
                aria-label={`Terminal ${number}${title && `: ${title}`}`}
                title={title}
                className={cx("min-w-0 truncate py-0.5 pl-2", id === tabs.active && "font-semibold text-accent")}
                onClick={() => onChoose(id)}
              >
                {number} <bdi>{title}</bdi>
              </button>
              <button
                type="button"
                aria-label={`Close terminal ${number}`}
                title="Close: its shell keeps running"
                className="m-0.5 rounded p-1 hover:bg-line"
                onClick={() => onClose(id)}
              >
                <X className="size-3.5" aria-hidden />
              </button>
            </li>
          );
        }),
      )}
    </ul>
  );
}
