import type { ComponentProps } from "react";
import { Link } from "wouter";
import { buttonClass, type Look } from "./button";
import { cx } from "./cx";

export function LinkButton({
  look,
  small,
  className,
  ...rest
}: ComponentProps<typeof Link> & { look?: Look; small?: boolean; className?: string }) {
  return <Link className={cx(buttonClass(look, small), className)} {...rest} />;
}
