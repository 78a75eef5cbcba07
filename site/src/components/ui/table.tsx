// Tables: a grid on wide pages, and on narrow ones a list of rows in which each cell follows its column's name
// (index.css).
import type { ReactNode } from "react";
import { cx } from "./cx";

// Column is one column of a table: its heading, and its cell in each row.
interface Column<T> {
  name: string;
  cell: (row: T) => ReactNode;
  className?: string; // of the cells
  sort?: { on: boolean; by: () => void }; // its heading is a button that sorts the rows by it
  action?: boolean; // holds the row's buttons: the name is for screen readers only
}

interface TableProps<T> {
  label: string; // names the table for screen readers
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  row?: (row: T) => RowProps;
}

interface RowProps {
  className?: string;
  "aria-current"?: boolean;
  onClick?: () => void;
  onMouseEnter?: () => void;
  onMouseLeave?: () => void;
}

// Table names every role, because the layout of narrow pages removes the native ones.
export function Table<T>({ label, columns, rows, id, row }: TableProps<T>) {
  return (
    // Wide tables scroll sideways, with the keyboard too.
    <div className="overflow-x-auto" tabIndex={0} role="region" aria-label={label}>
      <table role="table" className="stacked w-full border-collapse">
        <thead role="rowgroup">
          <tr role="row" className="border-b border-line">
            {columns.map((c) => (
              <th
                key={c.name}
                scope="col"
                role="columnheader"
                aria-sort={c.sort?.on ? "other" : undefined}
                className="px-4 py-2 text-left text-xs font-medium whitespace-nowrap text-muted"
              >
                {c.action ? <span className="sr-only">{c.name}</span> : c.sort ? <Sorter of={c} /> : c.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup" className="divide-y divide-line">
          {rows.map((r) => (
            <tr key={id(r)} role="row" {...row?.(r)}>
              {columns.map((c) => (
                <td
                  key={c.name}
                  role="cell"
                  data-column={c.name}
                  data-action={c.action}
                  className={cx("px-4 py-2 align-middle", c.action && "text-right", c.className)}
                >
                  {c.cell(r)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Sorter({ of: { name, sort } }: { of: Pick<Column<never>, "name" | "sort"> }) {
  return (
    <button
      type="button"
      title={`Sort by ${name.toLowerCase()}`}
      className={cx("hover:text-ink", sort?.on && "font-semibold text-ink")}
      onClick={sort?.by}
    >
      {name}
      {sort?.on && <span aria-hidden> ↓</span>}
    </button>
  );
}

export const mono = "font-mono text-[13px]";
