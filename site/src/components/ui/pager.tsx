import { Button } from "./button";

interface PagerProps {
  page: number; // from 0
  size: number; // rows of a full page
  rows: number; // of this page
  count: number; // of all pages
  back?: string;
  forth?: string;
  onPage: (page: number) => void;
}

// Pager leads to the pages before and after this one. It shows nothing if there are none.
export function Pager({ page, size, rows, count, back = "Previous", forth = "Next", onPage }: PagerProps) {
  const first = page * size;
  if (first === 0 && rows >= count) return null;
  return (
    <nav aria-label="Pages" className="flex items-center justify-between gap-2">
      <Button disabled={page === 0} onClick={() => onPage(page - 1)}>
        {back}
      </Button>
      <span className="text-muted">{rows === 0 ? "End" : `${first + 1}–${first + rows}`}</span>
      <Button disabled={first + rows >= count} onClick={() => onPage(page + 1)}>
        {forth}
      </Button>
    </nav>
  );
}
