// @vitest-environment jsdom
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { Boundary } from "./boundary";
import { Unloaded } from "./unloaded";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const answers = (...oks: boolean[]) => {
  const fetch = vi.fn<() => Promise<{ ok: boolean }>>();
  for (const ok of oks)
    fetch.mockImplementationOnce(() => (ok ? Promise.resolve({ ok }) : Promise.reject(new Error())));
  vi.stubGlobal("fetch", fetch);
  return fetch;
};

it("says that the server was updated only if it answers", async () => {
  answers(true);
  const reload = vi.fn<() => void>();
  render(<Unloaded reload={reload} />);
  await screen.findByRole("heading", { level: 1, name: "The server was updated" });
  expect(reload).not.toHaveBeenCalled();
  fireEvent.click(screen.getByRole("button", { name: "Reload" }));
  expect(reload).toHaveBeenCalledOnce();
});

it("waits for a server that does not answer, and opens the page then", async () => {
  const fetch = answers(false, false, true);
  const reload = vi.fn<() => void>();
  render(<Unloaded reload={reload} />);
  await screen.findByText("Cannot reach the server");
  expect(screen.queryByText(/updated/)).toBeNull();
  expect(screen.queryByRole("button")).toBeNull();
  await vi.waitFor(() => expect(reload).toHaveBeenCalledOnce(), 30_000);
  expect(fetch).toHaveBeenCalledTimes(3);
});

it("tells code that cannot be loaded from a page that crashed", async () => {
  answers(false);
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
