import type { ComponentProps } from "react";
import { cx } from "./cx";

export function IconButton({ label, className, children, ...rest }: ComponentProps<"button"> & { label: string }) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={cx(
        "inline-flex size-8 items-center justify-center rounded-md hover:bg-raised disabled:opacity-50 [&_svg]:size-4",
        className,
      )}
      {...rest}
    >
      {children}
    </button>
  );
}
