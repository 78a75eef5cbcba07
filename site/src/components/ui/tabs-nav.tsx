import { Link } from "wouter";
import { cx } from "./cx";

// TabsNav links the tabs of a page, each with its own address.
export function TabsNav({
  label,
  tabs,
  current,
}: {
  label: string;
  tabs: { to: string; name: string; key: string }[];
  current: string;
}) {
  return (
    <nav aria-label={label} className="-mb-px flex gap-1 overflow-x-auto border-b border-line">
      {tabs.map((t) => (
        <Link
          key={t.key}
          href={t.to}
          aria-current={t.key === current ? "page" : undefined}
          className={cx(
            "border-b-2 px-3 py-1.5 whitespace-nowrap",
            t.key === current ? "border-accent font-medium" : "border-transparent text-muted hover:text-ink",
          )}
        >
          {t.name}
        </Link>
      ))}
    </nav>
  );
}
