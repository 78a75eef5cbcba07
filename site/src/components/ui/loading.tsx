import { LoaderCircle } from "lucide-react";

export function Loading({ what }: { what: string }) {
  return (
    <div className="flex items-center justify-center gap-2 py-14 text-muted" role="status">
      <LoaderCircle className="size-4 animate-spin" aria-hidden /> Loading {what}…
    </div>
  );
}
