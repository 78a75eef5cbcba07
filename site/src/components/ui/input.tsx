// Inputs without labels. They are apart from forms, which the first page does not need.
import type { ComponentProps } from "react";
import { cx } from "./cx";

export const inputClass =
  "w-full min-w-0 rounded-md border border-edge bg-panel px-2.5 " +
  "placeholder:text-muted disabled:opacity-60 aria-invalid:border-bad";

export const Input = ({ className, ...rest }: ComponentProps<"input">) => (
  <input className={cx(inputClass, "h-8", className)} {...rest} />
);

export const Select = ({ className, ...rest }: ComponentProps<"select">) => (
  <select className={cx(inputClass, "h-8", className)} {...rest} />
);
