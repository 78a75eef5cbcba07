import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { IconButton } from "./icon-button";

// copyText also works on pages without TLS, where browsers offer no clipboard API.
async function copyText(text: string) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copyText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <>
      <IconButton label={label} onClick={() => void copy()}>
        {done ? <Check className="text-ok" /> : <Copy />}
      </IconButton>
      <span role="status" className="sr-only">
        {done ? "Copied" : ""}
      </span>
    </>
  );
}

// CopyLine is a line of text to copy, usually a command.
export function CopyLine({ text, label }: { text: string; label: string }) {
  return (
    <div className="flex min-w-0 items-center gap-1 rounded-md border border-line bg-raised pl-2.5">
      <input
        readOnly
        value={text}
        aria-label={label}
        onFocus={(e) => e.target.select()}
        className="min-w-0 flex-1 bg-transparent py-1.5 font-mono text-[13px] text-ellipsis"
      />
      <CopyButton text={text} label={`Copy ${label}`} />
    </div>
  );
}
