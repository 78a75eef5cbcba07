// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import { keepSingleKeys, shortcutOf, singleKeys } from "./keys";

afterEach(() => {
  document.body.innerHTML = "";
  localStorage.clear();
});

const press = (key: string, more: KeyboardEventInit = {}, on: Element = document.body) => {
  let got: ReturnType<typeof shortcutOf>;
  const listen = (e: Event) => (got = shortcutOf(e as KeyboardEvent));
  document.addEventListener("keydown", listen, { once: true });
  on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, ...more }));
  return got;
};

it("knows the keys for the page from those that are typed", () => {
  expect(press("/")).toBe("search");
  expect(press("?", { shiftKey: true })).toBe("help");
  expect(press("k", { metaKey: true })).toBe("palette");
  expect(press("k")).toBeUndefined();
  expect(press("/", { ctrlKey: true })).toBeUndefined();
  document.body.innerHTML = `<input id="field">`;
  const field = document.getElementById("field")!;
  expect(press("/", {}, field)).toBeUndefined();
  expect(press("K", { ctrlKey: true }, field)).toBe("palette");
  const root = document.body.appendChild(document.createElement("div")).attachShadow({ mode: "open" });
  root.innerHTML = `<p contenteditable></p>`;
  expect(press("/", { composed: true }, root.firstElementChild!)).toBeUndefined();
  document.body.innerHTML = `<dialog open></dialog>`;
  expect(press("?")).toBeUndefined();
});

it("leaves single keys alone where users turned them off", () => {
  keepSingleKeys(false);
  expect(singleKeys()).toBe(false);
  expect(press("/")).toBeUndefined();
  expect(press("k", { ctrlKey: true })).toBe("palette");
  keepSingleKeys(true);
  expect(press("/")).toBe("search");
});
