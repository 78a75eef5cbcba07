import { X } from "lucide-react";
import { Link } from "wouter";
import { dismiss, useToasts } from "~/lib/toasts";
import { cx } from "./cx";
import { IconButton } from "./icon-button";

// Toasts shows the messages at the edge of the page. Its regions are always there, so that screen readers announce
// what appears in them.
export function Toasts() {
  const toasts = useToasts();
  return (
    <div className="pointer-events-none fixed right-3 bottom-3 left-3 z-40 flex flex-col items-end gap-2">
      {(["ok", "bad"] as const).map((tone) => (
        <div
          key={tone}
          aria-live={tone === "bad" ? "assertive" : "polite"}
          className="flex max-w-full flex-col items-end gap-2"
        >
          {toasts
            .filter((t) => t.tone === tone)
            .map((t) => (
              <div
                key={t.id}
                className={cx(
                  "pointer-events-auto flex max-w-md items-center gap-2 rounded-md border border-line bg-panel",
                  "border-l-4 py-1 pr-1 pl-3 shadow-lg",
                  tone === "bad" ? "border-l-bad" : "border-l-ok",
                )}
              >
                <p className="min-w-0 break-words">{t.text}</p>
                {t.to && (
                  <Link href={t.to} className="shrink-0 text-accent hover:underline" onClick={() => dismiss(t.id)}>
                    Show
                  </Link>
                )}
                <IconButton label="Dismiss" onClick={() => dismiss(t.id)}>
                  <X />
                </IconButton>
              </div>
            ))}
        </div>
      ))}
    </div>
  );
}
