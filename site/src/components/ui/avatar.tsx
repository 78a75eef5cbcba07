import { cx } from "./cx";

export function Avatar({ name }: { name: string }) {
  return (
    <span
      aria-hidden
      className={cx(
        "inline-flex size-6 shrink-0 items-center justify-center rounded-full",
        "bg-accent-soft text-xs font-semibold text-accent uppercase",
      )}
    >
      {name.slice(0, 1)}
    </span>
  );
}
