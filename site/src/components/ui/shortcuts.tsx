// The keyboard shortcuts, as "?" lists them.
import { useState } from "react";
import { keepSingleKeys, singleKeys } from "~/lib/keys";
import { DoneDialog } from "./dialog";
import { Checkbox } from "./form";

const shortcuts: [keys: string[], what: string][] = [
  [["Ctrl", "K"], "Open the command palette (Cmd+K on a Mac)"],
  [["/"], "Search on this page, or in the command palette"],
  [["?"], "List the keyboard shortcuts"],
  [["Esc"], "Close a menu or a dialog"],
  [["Esc", "Tab"], "Leave the editor of files, where Tab indents"],
  [["Ctrl", "Shift", "Enter"], "Leave a terminal, which gets Esc and Tab, for its bar"],
  [["Ctrl", "Shift", "F"], "Search in a terminal"],
  [["Tab"], "Go to the next link, button or field"],
];

export default function Shortcuts({ onClose }: { onClose: () => void }) {
  const [on, turn] = useState(singleKeys);
  return (
    <DoneDialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="grid grid-cols-[auto_1fr] items-baseline gap-x-6 gap-y-2">
        {shortcuts.map(([keys, what]) => (
          <div key={what} className="contents">
            <dt className="flex gap-1">
              {keys.map((key) => (
                <kbd key={key} className="rounded border border-line bg-raised px-1.5 font-mono text-[13px]">
                  {key}
                </kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <Checkbox
        label="Use / and ? as shortcuts in this browser"
        checked={on}
        onChange={(to) => {
          keepSingleKeys(to);
          turn(to);
        }}
      />
    </DoneDialog>
  );
}
