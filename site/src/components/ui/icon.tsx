import { useState } from "react";
import { cx } from "./cx";

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
