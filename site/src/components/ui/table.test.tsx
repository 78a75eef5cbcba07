// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Table } from "./table";

afterEach(cleanup);

const show = (names: string[]) => (
  <Table
    label="Keys"
    rows={names}
    id={(name) => name}
    columns={[
      { name: "Name", cell: (name) => name },
      { name: "Length", cell: (name) => name.length },
      { name: "Actions", action: true, cell: (name) => <button type="button">Delete {name}</button> },
    ]}
  />
);

it("gives each cell its role and its column's name, in rows that come later too", () => {
  const { rerender } = render(show(["ada"]));
  rerender(show(["ada", "grace"]));
  const region = screen.getByRole("region", { name: "Keys" });
  expect(screen.getAllByRole("columnheader").map((h) => h.textContent)).toEqual(["Name", "Length", "Actions"]);
  expect(region.querySelectorAll("[role=rowgroup]")).toHaveLength(2);
  const cells = [...screen.getAllByRole("row")[2]!.children] as HTMLElement[];
  expect(cells.map((c) => [c.getAttribute("role"), c.dataset["column"], c.textContent])).toEqual([
    ["cell", "Name", "grace"],
    ["cell", "Length", "5"],
    ["cell", "Actions", "Delete grace"],
  ]);
  expect(cells.map((c) => c.hasAttribute("data-action"))).toEqual([false, false, true]);
});
