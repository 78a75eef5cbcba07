import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { IconButton } from "./ui";

// copyText works without the clipboard API too, which browsers keep from pages without TLS.
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
      <IconButton label={label} onClick={() => void copy()}>{done ? <Check className="text-ok" /> : <Copy />}</IconButton>
      <span role="status" className="sr-only">{done ? "Copied" : ""}</span>
    </>
  );
}

// CopyLine is a line of text to be copied, a command most of the time.
export function CopyLine({ text, label, secret }: { text: string; label: string; secret?: boolean }) {
  return (
    <div className="flex min-w-0 items-center gap-1 rounded-md border border-line bg-raised pl-2.5">
      <code className={`min-w-0 flex-1 overflow-x-auto py-1.5 text-[13px] whitespace-nowrap ${secret ? "select-all" : ""}`} tabIndex={0} role="textbox" aria-readonly="true" aria-label={label}>{text}</code>
      <CopyButton text={text} label={`Copy ${label}`} />
    </div>
  );
}
