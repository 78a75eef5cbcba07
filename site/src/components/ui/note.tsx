import type { ReactNode } from "react";
import { cx } from "./cx";
import { type Tone, tones } from "./tone";

export function Note({
  tone = "bad",
  title,
  children,
}: {
  tone?: Exclude<Tone, "plain">;
  title?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <div
      role={tone === "bad" ? "alert" : "status"}
      className={cx("rounded-md px-3 py-2 break-words whitespace-pre-wrap", tones[tone])}
    >
      {title && <p className="font-medium">{title}</p>}
      {children && <div className="text-ink">{children}</div>}
    </div>
  );
}
