import { LoaderCircle } from "lucide-react";
import type { ComponentProps } from "react";
import { cx } from "./cx";

export type Look = "plain" | "primary" | "danger" | "quiet";

const looks: Record<Look, string> = {
  plain: "border border-line bg-panel hover:bg-raised",
  primary: "border border-transparent bg-fill text-white hover:brightness-110",
  danger: "border border-line bg-panel text-bad hover:bg-bad-soft",
  quiet: "border border-transparent hover:bg-raised",
};

export const buttonClass = (look: Look = "plain", small = false) =>
  cx(
    "inline-flex items-center justify-center gap-1.5 rounded-md font-medium",
    "whitespace-nowrap select-none disabled:opacity-50 [&_svg]:size-4 [&_svg]:shrink-0",
    small ? "h-7 px-2 text-[13px]" : "h-8 px-3",
    looks[look],
  );

interface ButtonProps extends ComponentProps<"button"> {
  look?: Look;
  small?: boolean;
  busy?: boolean;
}

export function Button({ look, small, busy, className, children, disabled, type = "button", ...rest }: ButtonProps) {
  return (
    <button
      type={type}
      className={cx(buttonClass(look, small), className)}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      {...rest}
    >
      {busy && <LoaderCircle className="animate-spin" aria-hidden />}
      {children}
    </button>
  );
}
