// The small parts that every page is made of.
import { LoaderCircle } from "lucide-react";
import { type ComponentProps, type ReactNode, useState } from "react";
import { Link } from "wouter";
import { ApiError } from "~/api/client";
import { ago, fullTime } from "~/lib/format";
import { useNow } from "~/lib/hooks";

export const cx = (...names: (string | false | null | undefined)[]) => names.filter(Boolean).join(" ");

type Look = "plain" | "primary" | "danger" | "quiet";

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

export function LinkButton({
  look,
  small,
  className,
  ...rest
}: ComponentProps<typeof Link> & { look?: Look; small?: boolean; className?: string }) {
  return <Link className={cx(buttonClass(look, small), className)} {...rest} />;
}

export function Card({
  title,
  actions,
  children,
  flush,
  className,
}: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  flush?: boolean;
  className?: string;
}) {
  return (
    <section className={cx("min-w-0 rounded-lg border border-line bg-panel", className)}>
      {(title || actions) && (
        <header className="flex min-h-11 flex-wrap items-center justify-between gap-2 border-b border-line px-4 py-1.5">
          <h2 className="font-semibold">{title}</h2>
          {actions}
        </header>
      )}
      <div className={flush ? "" : "p-4"}>{children}</div>
    </section>
  );
}

type Tone = "plain" | "ok" | "warn" | "bad" | "accent";

const tones: Record<Tone, string> = {
  plain: "bg-raised text-muted",
  ok: "bg-ok-soft text-ok",
  warn: "bg-warn-soft text-warn",
  bad: "bg-bad-soft text-bad",
  accent: "bg-accent-soft text-accent",
};

export type { Tone };

export function Badge({
  tone = "plain",
  children,
  title,
  className,
}: {
  tone?: Tone;
  children: ReactNode;
  title?: string;
  className?: string;
}) {
  return (
    <span
      title={title}
      className={cx(
        "inline-flex h-5 items-center gap-1 rounded px-1.5 text-xs font-medium whitespace-nowrap [&_svg]:size-3",
        tones[tone],
        className,
      )}
    >
      {children}
    </span>
  );
}

const Tag = ({ name, value }: { name: string; value: string }) => (
  <Badge>
    <span className="font-mono">
      {name}={value}
    </span>
  </Badge>
);

export function Tags({ of, none = "untagged" }: { of: Record<string, string>; none?: string }) {
  const all = Object.entries(of).filter(
    ([name, value]) => value !== "" && !(name === "scope" && value === "organization"),
  );
  return all.length === 0 ? (
    <span className="text-muted">{none}</span>
  ) : (
    <span className="inline-flex flex-wrap gap-1">
      {all.map(([k, v]) => (
        <Tag key={k} name={k} value={v} />
      ))}
    </span>
  );
}

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

// Empty says that there is nothing. page: it is all that the page shows, and its title is the page's heading.
export function Empty({
  icon,
  title,
  page,
  children,
  action,
}: {
  icon?: ReactNode;
  title: string;
  page?: boolean;
  children?: ReactNode;
  action?: ReactNode;
}) {
  const Title = page ? "h1" : "p";
  return (
    <div className="flex flex-col items-center gap-2 px-6 py-14 text-center">
      {icon && (
        <div className="mb-1 text-muted [&_svg]:size-8" aria-hidden>
          {icon}
        </div>
      )}
      <Title className="text-base font-semibold">{title}</Title>
      {children && <div className="max-w-md text-muted">{children}</div>}
      {action && <div className="mt-3">{action}</div>}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <div className="flex items-center justify-center gap-2 py-14 text-muted" role="status">
      <LoaderCircle className="size-4 animate-spin" aria-hidden /> Loading {what}…
    </div>
  );
}

interface Asked {
  error: unknown;
  isPending: boolean;
}

// Pending stands in for a query that has no answer yet or failed.
export function Pending({ query: { error, isPending }, what }: { query: Asked; what: string }) {
  if (error) return <ErrorNote error={error} />;
  return isPending ? <Loading what={what} /> : null;
}

// PendingPage stands in for a whole page.
export function PendingPage({ query, what, title }: { query: Asked; what: string; title: ReactNode }) {
  if (!query.error) return <Loading what={what} />;
  return (
    <Page title={title}>
      <ErrorNote error={query.error} />
    </Page>
  );
}

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

interface ErrorNoteProps {
  error: unknown;
  title?: string;
  except?: (field: string) => boolean; // fields that show their errors themselves
}

// ErrorNote shows an error with the server's message.
export function ErrorNote({ error, title, except }: ErrorNoteProps) {
  if (!error) return null;
  const message = error instanceof Error ? error.message : String(error);
  const api = error instanceof ApiError ? error : undefined;
  const fields = api?.validations.filter((v) => !except?.(v.field)) ?? [];
  return (
    <Note title={title ? `${title}: ${message}` : message}>
      {api?.detail}
      {fields.length > 0 && (
        <ul className="list-disc pl-5">
          {fields.map((v) => (
            <li key={v.field}>
              <code>{v.field}</code>: {v.detail}
            </li>
          ))}
        </ul>
      )}
    </Note>
  );
}

// Ago shows how long ago a moment was, and keeps that current.
export function Ago({ at }: { at: string | null | undefined }) {
  useNow(30_000); // renders again; the moment may be later than the last tick
  return (
    <time dateTime={at ?? undefined} title={fullTime(at)}>
      {ago(at)}
    </time>
  );
}

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

// Icon is the picture of a template, an app or a parameter. It shows only pictures of this server, since any other host
// would learn who looks at the page. An emoji's address becomes the emoji.
export function Icon({
  src,
  name,
  className = "size-5",
}: {
  src?: string | undefined;
  name: string;
  className?: string;
}) {
  const [broken, setBroken] = useState("");
  const emoji = /^\/emojis?\/([0-9a-f-]+)\.\w+$/i.exec(src ?? "")?.[1];
  if (emoji)
    return (
      <span aria-hidden className={cx("inline-flex shrink-0 items-center justify-center leading-none", className)}>
        {String.fromCodePoint(
          ...emoji
            .split("-")
            .map((c) => parseInt(c, 16))
            .filter((c) => c <= 0x10ffff),
        )}
      </span>
    );
  if (src && src !== broken && /^\/(?![/\\])/.test(src))
    return <img src={src} alt="" className={cx("shrink-0 object-contain", className)} onError={() => setBroken(src)} />;
  return (
    <span
      aria-hidden
      className={cx(
        "inline-flex shrink-0 items-center justify-center rounded bg-raised text-xs font-semibold text-muted uppercase",
        className,
      )}
    >
      {name.slice(0, 1)}
    </span>
  );
}

export function Facts({ of }: { of: [string, ReactNode][] }) {
  return (
    <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1.5">
      {of.map(([name, value]) => (
        <div key={name} className="contents">
          <dt className="text-muted">{name}</dt>
          <dd className="min-w-0 break-words">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
