// @vitest-environment jsdom
import { act, renderHook } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { useVisibleHeight } from "./visible-height";

afterEach(() => vi.unstubAllGlobals());

// phone shows a keyboard that leaves so many px, at a zoom.
function phone() {
  const view = Object.assign(new EventTarget(), { height: window.innerHeight, scale: 1 });
  vi.stubGlobal("visualViewport", view);
  vi.stubGlobal("scrollTo", vi.fn());
  return (height: number, scale = 1) =>
    act(() => {
      Object.assign(view, { height, scale });
      view.dispatchEvent(new Event("resize"));
    });
}

it("takes the height that a phone's keyboard leaves", () => {
  const show = phone();
  const { result } = renderHook(() => useVisibleHeight(true));
  expect(result.current).toBeUndefined();
  show(300);
  expect(result.current).toBe(300);
  expect(window.scrollTo).toHaveBeenCalledWith(0, 0);
  show(200, 2); // the user zooms
  expect(result.current).toBeUndefined();
  show(window.innerHeight);
  expect(result.current).toBeUndefined();
});

it("leaves the height alone on other computers", () => {
  const show = phone();
  const { result } = renderHook(() => useVisibleHeight(false));
  show(300);
  expect(result.current).toBeUndefined();
});
