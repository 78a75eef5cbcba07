// The keys of a terminal that a phone's keyboard lacks.
import { ArrowDown, ArrowLeft, ArrowRight, ArrowUp } from "lucide-react";
import type { ReactNode } from "react";
import type { PhoneKey } from "~/lib/terminal-keys";

const keys: [key: PhoneKey, label: string, shows: ReactNode][] = [
  ["Tab", "Tab", "Tab"],
  ["Left", "Left arrow", <ArrowLeft key="icon" />],
  ["Up", "Up arrow", <ArrowUp key="icon" />],
  ["Down", "Down arrow", <ArrowDown key="icon" />],
  ["Right", "Right arrow", <ArrowRight key="icon" />],
];

interface Props {
  ctrl: boolean; // is held for the next key
  onCtrl: (held: boolean) => void;
  onKey: (key: PhoneKey) => void;
}

const look =
  "flex h-10 min-w-0 flex-1 items-center justify-center rounded-md border border-line bg-panel active:bg-raised " +
  "select-none aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent [&_svg]:size-4";

export function KeyRow({ ctrl, onCtrl, onKey }: Props) {
  return (
    <div
      role="group"
      aria-label="Keys"
      className="flex gap-1 border-t border-line bg-panel p-1 text-ink"
      // A tap leaves the focus, and with it the phone's keyboard, where it is.
      onMouseDown={(e) => e.preventDefault()}
    >
      <button type="button" className={look} onClick={() => onKey("Escape")}>
        Esc
      </button>
      <button type="button" className={look} aria-pressed={ctrl} onClick={() => onCtrl(!ctrl)}>
        Ctrl
      </button>
      {keys.map(([key, label, shows]) => (
        <button key={key} type="button" className={look} aria-label={label} onClick={() => onKey(key)}>
          {shows}
        </button>
      ))}
    </div>
  );
}
