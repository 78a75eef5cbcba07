import type { ReactNode } from "react";

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
