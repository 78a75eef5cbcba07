// The editor of a template's files: colours, keys, and errors of an import at their lines.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import type { Page } from "playwright-core";
import { axe, contentOf, open, picture, rewrite, withBrowser } from "./browser";
import { api, run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

const main = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
# where it runs
resource "terraform_data" "x" {
  input = "a \${upper("b")}"
}
`;

beforeAll(async () => {
  const dir = join(place.dir, "coloured");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "main.tf"), main);
  writeFileSync(join(dir, "windows.sh"), "echo one\r\necho two\r\n");
  await run(place, ["templates", "push", "coloured", "-d", dir, "--name", "one", "-y"]);
});

const start = async (page: Page, version = "one") => {
  await page.goto(`/templates/coloured/versions/${version}/edit`);
  const text = page.getByRole("textbox", { name: "main.tf", exact: true });
  await text.waitFor();
  return text;
};
const line = (page: Page, text: string) => page.locator(".cm-line", { hasText: text });
const focusedName = (page: Page) =>
  page.evaluate(() => {
    let focused = document.activeElement;
    while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
    return focused?.getAttribute("aria-label") ?? focused?.textContent;
  });

for (const dark of [false, true])
  it(`keeps the errors of an import at their lines until it succeeds (${dark ? "dark" : "light"})`, async () => {
    const { page } = await open(place, token, { dark });
    const text = await start(page);
    await rewrite(
      text,
      main.replace("upper", "uper").replace("# where", "# where it is, and where") + "locals {\n  n = var.nope\n}\n",
    );
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByText("Import failed").waitFor({ timeout: 60_000 });
    // Each error is below its line, and the list leads there.
    const message = page.locator(".cm-line:has-text('uper') + .cm-problem");
    expect(await message.innerText()).toContain("uper");
    expect(await page.locator(".cm-line:has-text('var.nope') + .cm-problem").innerText()).toContain("nope");
    await axe(page, "the editor with errors");
    if (!dark) await picture(page, "editor");
    await page.getByRole("button", { name: "Changes" }).click();
    const removed = page.getByRole("region", { name: "Changes of main.tf" });
    await removed
      .locator("span", { hasText: /^# where it is/ })
      .first()
      .waitFor();
    await axe(page, "coloured changes");
    await page.getByRole("button", { name: "main.tf, line 8" }).click();
    await expect.poll(() => focusedName(page)).toBe("main.tf");
    // Typing goes to the line that was led to, and its message moves with it.
    await page.keyboard.type("# mended\n");
    expect(await line(page, "# mended").count()).toBe(1);
    expect(await message.innerText()).toContain("uper");
    await rewrite(text, `${main}# ${dark}\n`);
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByRole("button", { name: "Activate version" }).click({ timeout: 60_000 });
    await page.waitForURL("**/templates/coloured");
    // The same colours in Files.
    await page.getByRole("link", { name: "Files" }).click();
    const comment = page.locator("span", { hasText: /^# where it runs$/ }).last();
    expect(await comment.evaluate((e) => getComputedStyle(e).color)).toBe(
      dark ? "rgb(154, 165, 182)" : "rgb(86, 96, 115)",
    );
    await axe(page, "coloured files");
  });

it("is used with the keyboard alone, and left with Escape and Tab", async () => {
  const { page } = await open(place, token);
  const text = await start(page);
  await page.getByRole("button", { name: "Remove main.tf" }).focus();
  await page.keyboard.press("Tab");
  expect(await focusedName(page)).toBe("main.tf");
  await page.getByText("To leave the text, press Escape, then Tab.").waitFor();
  // Tab indents, Enter indents as the brackets say.
  await page.keyboard.press("Control+End");
  await page.keyboard.type("locals {\nx = 1\n}\n");
  expect((await contentOf(text)).endsWith("locals {\n  x = 1\n}\n")).toBe(true);
  await page.keyboard.press("Tab");
  await page.keyboard.type("# in");
  await line(page, "  # in").waitFor();
  expect(await focusedName(page)).toBe("main.tf");
  // A key of the page's is a letter here.
  await page.keyboard.type(" / ?");
  await line(page, "  # in / ?").waitFor();
  // Find, and go to a line.
  await page.keyboard.press("Control+f");
  await page.keyboard.type("source");
  await page.keyboard.press("Enter");
  await page.locator(".cm-searchMatch-selected", { hasText: "source" }).waitFor();
  await axe(page, "the editor's search");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+Alt+g");
  await page.keyboard.type("6");
  await page.keyboard.press("Enter");
  await page.locator(".cm-goto-line").waitFor({ state: "detached" });
  await page.keyboard.type("# six ");
  await line(page, "# six # where it runs").waitFor();
  // Undo goes back, also after another file was shown.
  await page.getByRole("button", { name: "windows.sh" }).press("Enter");
  await page.getByRole("textbox", { name: "windows.sh" }).waitFor();
  await page.getByRole("button", { name: "main.tf", exact: true }).press("Enter");
  await text.focus();
  await page.keyboard.press("Control+z");
  expect(await line(page, "# six").count()).toBe(0);
  // Typing takes the place of what is selected.
  await page.keyboard.press("Control+End");
  await page.keyboard.press("Control+Shift+Home");
  await page.keyboard.type("# new");
  expect(await contentOf(text)).toBe("# new");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Shift+Tab");
  expect(await focusedName(page)).toBe("Remove main.tf");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  expect(await focusedName(page)).not.toBe("main.tf");
  expect(await contentOf(text)).toBe("# new");
});

it("keeps the line ends of a file, and the policy of the page", async () => {
  const { page } = await open(place, token); // fails at each complaint of the browser about the policy
  await start(page);
  await page.getByRole("button", { name: "windows.sh" }).click();
  await page.getByRole("textbox", { name: "windows.sh" }).focus();
  await page.keyboard.press("Control+End");
  await page.evaluate(() => navigator.clipboard.writeText("echo three\n"));
  await page.keyboard.press("Control+v");
  await line(page, "echo three").waitFor();
  await page.getByLabel("Name", { exact: true }).fill("three");
  await page.getByRole("button", { name: "Import", exact: true }).click();
  await page.getByRole("button", { name: "Activate version" }).waitFor({ timeout: 60_000 });
  const [template] = await api<{ id: string }[]>(place, token, "GET", "templates?q=exact_name:coloured");
  const version = await api<{ job: { file_id: string } }>(
    place,
    token,
    "GET",
    `templates/${template!.id}/versions/three`,
  );
  const file = await fetch(`${place.url}/api/v2/files/${version.job.file_id}?format=tar`, {
    headers: { "Coder-Session-Token": token },
  });
  expect(await file.text()).toContain("echo one\r\necho two\r\necho three\r\n");
  expect(await page.locator("style").count()).toBe(0);
});
