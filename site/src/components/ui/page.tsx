import type { ReactNode } from "react";
import { cx } from "./cx";

// Page is what a page shows below the navigation. narrow: a form or a text, whose lines would become too long.
export function Page({
  title,
  subtitle,
  actions,
  narrow,
  children,
}: {
  title: ReactNode;
  subtitle?: ReactNode;
  actions?: ReactNode;
  narrow?: boolean;
  children: ReactNode;
}) {
  return (
    <div
      className={cx(
        "mx-auto flex w-full flex-col gap-4 px-3 py-5 sm:px-6",
        narrow ? "max-w-[1008px]" : "max-w-[1440px]",
      )}
    >
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2">
        <div className="min-w-0">
          <h1 className="text-xl font-semibold tracking-tight break-words">{title}</h1>
          {subtitle && <p className="text-muted">{subtitle}</p>}
        </div>
        {actions && <div className="flex flex-wrap items-center gap-2">{actions}</div>}
      </div>
      {children}
    </div>
  );
}
