// A dashboard in an open tab, and a server two releases newer: the dashboard shows values that it does not know as
// text, and ignores fields that it does not know.
import { beforeAll, expect, inject, it } from "vitest";
import { open, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

beforeAll(() => run(place, ["create", "skew", "-t", "process", "-y"]));

// Fields whose values a newer server may add to, as text that no release has.
const grown = new Set([
  "automatic_updates",
  "lifecycle_state",
  "login_type",
  "open_in",
  "reason",
  "severity",
  "sharing_level",
  "status",
]);

function newer(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(newer);
  if (value === null || typeof value !== "object") return value;
  const known = Object.entries(value).map(([key, v]) => [
    key,
    grown.has(key) && typeof v === "string" ? "dreaming" : newer(v),
  ]);
  return { ...Object.fromEntries(known), invented_since: "blue" };
}

it("shows what a newer server invented", async () => {
  const { page } = await open(place, token);
  await page.route("**/api/v2/**", async (route) => {
    const request = route.request();
    const keeps = /\/(events|logs|users\/me)(\?|$)/.test(request.url()); // streams, and whether one is signed in
    if (request.method() !== "GET" || request.resourceType() !== "fetch" || keeps) return route.continue();
    const response = await route.fetch();
    if (!response.ok() || !response.headers()["content-type"]?.includes("json")) return route.fulfill({ response });
    return route.fulfill({ response, json: newer(await response.json()) });
  });
  for (const path of [
    "/workspaces",
    "/@ada/skew",
    "/@ada/skew?tab=settings",
    "/templates/process/versions",
    "/provisioners",
    "/users",
    "/health",
  ]) {
    await page.goto(path);
    await page.locator("main h1").first().waitFor();
    await page.waitForLoadState("networkidle");
    expect(await page.getByText("This page crashed").count(), path).toBe(0);
    expect(await page.locator("main").innerText(), path).not.toMatch(/undefined|\[object/);
    if (!/settings/.test(path))
      expect((await page.locator("main").innerText()).toLowerCase(), path).toContain("dreaming");
  }
});
