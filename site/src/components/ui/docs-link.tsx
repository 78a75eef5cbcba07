import { BookOpen } from "lucide-react";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { paths } from "~/lib/path";

// DocsLink leads to a page of the documentation, or to a section of one: "tokens#scopes".
export const DocsLink = ({ to, children }: { to: string; children: ReactNode }) => (
  <Link
    href={paths.docs(to)}
    className="inline-flex items-center gap-1 align-bottom text-[13px] text-accent hover:underline [&_svg]:size-3.5"
  >
    <BookOpen aria-hidden /> {children}
  </Link>
);
