// @vitest-environment jsdom
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Boundary } from "./boundary";
import { Unloaded } from "./unloaded";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

// answers has a server answer one question after the other, or not, with the dashboard of an entry.
const answers = (entry: string, ...oks: boolean[]) => {
  const fetch = vi.fn<(path: string) => Promise<{ ok: boolean; text: () => Promise<string> }>>();
  fetch.mockImplementation((path) => {
    const ok = path !== "/healthz" || oks.shift();
    const text = () => Promise.resolve(`<script type="module" src="/assets/${entry}.js"></script>`);
    return ok ? Promise.resolve({ ok, text }) : Promise.reject(new Error());
  });
  vi.stubGlobal("fetch", fetch);
  return fetch;
};

beforeEach(() => {
  sessionStorage.clear();
  document.head.innerHTML = '<script type="module" src="/assets/index-own.js"></script>';
});

it("says that the server was updated only if it has another dashboard", async () => {
  answers("index-next", true);
  const reload = vi.fn<() => void>();
  render(<Unloaded reload={reload} />);
  await screen.findByRole("heading", { level: 1, name: "The server was updated" });
  expect(reload).not.toHaveBeenCalled();
  fireEvent.click(screen.getByRole("button", { name: "Reload" }));
  expect(reload).toHaveBeenCalledOnce();
});

it("opens the page at once if another server has the code, and does not reload without end", async () => {
  answers("index-own", true, true);
  const reload = vi.fn<() => void>();
  const { unmount } = render(<Unloaded reload={reload} />);
  await vi.waitFor(() => expect(reload).toHaveBeenCalledOnce(), 30_000);
  expect(screen.queryByText(/updated/)).toBeNull();
  unmount();
  render(<Unloaded reload={reload} />); // the page after the reload
  await screen.findByRole("heading", { level: 1, name: "This page cannot be loaded" });
  expect(reload).toHaveBeenCalledOnce();
});

it("waits for a server that does not answer, and opens the page then", async () => {
  const fetch = answers("index-own", false, false, true);
  const reload = vi.fn<() => void>();
  render(<Unloaded reload={reload} />);
  await screen.findByText("Cannot reach the server");
  expect(screen.queryByText(/updated/)).toBeNull();
  expect(screen.queryByRole("button")).toBeNull();
  await vi.waitFor(() => expect(reload).toHaveBeenCalledOnce(), 30_000);
  expect(fetch.mock.calls.map(([path]) => path)).toEqual(["/healthz", "/healthz", "/healthz", "/"]);
});

it("tells code that cannot be loaded from a page that crashed", async () => {
  answers("index-own", false);
  vi.spyOn(console, "error").mockImplementation(() => {});
  const Fails = ({ with: message }: { with: string }) => {
    throw new Error(message);
  };
  const { unmount } = render(
    <Boundary>
      <Fails with="Failed to fetch dynamically imported module: http://x/y.js" />
    </Boundary>,
  );
  await screen.findByText("Cannot reach the server");
  unmount();
  render(
    <Boundary>
      <Fails with="a is not a function" />
    </Boundary>,
  );
  await screen.findByText("This page crashed");
});
