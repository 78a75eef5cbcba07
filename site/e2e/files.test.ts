// The files of a workspace in the browser, through the agent's SFTP server.
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, it } from "vitest";
import type { ConnectionLogsResponse, User, Workspace } from "../src/api/types";
import { axe, fits, open, withBrowser } from "./browser";
import { api, run } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

beforeAll(async () => {
  await run(place, ["create", "shelf", "-t", "process", "-y"]);
  const script =
    "mkdir -p files/src && cd files && printf 'region = \"eu\"\\nhello\\n' > notes.tf && " +
    "printf '<script>document.title = \"hacked\"</script>' > page.html && ln -s src link && " +
    "printf '\\000binary' > data && echo inside > src/inner.txt";
  await run(place, ["ssh", "shelf", "--", script]);
});

const list = (page: Page) => page.getByRole("table").filter({ hasText: "Permissions" });
const row = (page: Page, name: string) => list(page).getByRole("row").filter({ hasText: name });

async function visit(page: Page) {
  await page.goto("/@ada/shelf?tab=files");
  await page.getByRole("link", { name: "files", exact: true }).click();
  await row(page, "notes.tf").waitFor();
}

const png = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);

it("browses, previews and downloads", async () => {
  const { page } = await open(place, token);
  await visit(page);
  await axe(page, "files");
  // Folders come first.
  const names = await list(page).locator("td[data-column=Name]").allInnerTexts();
  expect(names.map((n) => n.split("\n")[0])).toEqual(["link", "src", "data", "notes.tf", "page.html"]);
  expect(await row(page, "link").innerText()).toContain("leads to src");

  await page.getByRole("button", { name: "notes.tf", exact: true }).press("Enter");
  const preview = page.getByRole("region", { name: "Preview of notes.tf" });
  await preview.getByText("hello").waitFor();
  await preview.locator(".text-code-string", { hasText: '"eu"' }).waitFor();
  await axe(page, "a preview");
  await page.keyboard.press("Escape");
  await preview.waitFor({ state: "detached" });
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("notes.tf");
  await page.getByRole("button", { name: "data", exact: true }).click();
  await page.getByText("Binary file").waitFor();
  await page.getByRole("button", { name: "Close" }).click();

  // A page from the workspace is stored, and its script does not run.
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Download page.html" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("page.html");
  expect(readFileSync(await download.path(), "utf8")).toContain("<script>");
  expect(await page.title()).not.toContain("hacked");
});

it("gives folders addresses", async () => {
  const { page } = await open(place, token);
  await visit(page);
  await page.getByRole("link", { name: "src", exact: true }).click();
  await row(page, "inner.txt").waitFor();
  expect(new URL(page.url()).searchParams.get("path")).toMatch(/\/files\/src$/);
  await page.goBack();
  await row(page, "notes.tf").waitFor();
  await page.goto("/@ada/shelf?tab=files&path=/nowhere");
  await page.getByText("does not exist in the workspace").waitFor();
});

it("uploads, by button and by dropping, and replaces when asked", async () => {
  const { page } = await open(place, token);
  await visit(page);
  const uploads = page.getByRole("list", { name: "Uploads" });
  await page.getByLabel("Files to upload").setInputFiles([
    { name: "dot.png", mimeType: "image/png", buffer: png },
    { name: "large.bin", mimeType: "", buffer: Buffer.alloc(3 << 20, 7) },
  ]);
  await uploads.getByRole("listitem").filter({ hasText: "large.bin" }).getByText("3.0 MiB uploaded").waitFor();
  await row(page, "large.bin").getByText("3.0 MiB").waitFor();

  await page.getByRole("button", { name: "dot.png", exact: true }).click();
  const picture = page.getByRole("img", { name: "dot.png" });
  await picture.waitFor();
  await page.waitForFunction(() => document.querySelector<HTMLImageElement>('img[alt="dot.png"]')?.naturalWidth === 1);
  await page.getByRole("button", { name: "Close" }).click();

  // A file that is there stays until its replacement is confirmed.
  await page.getByLabel("Files to upload").setInputFiles({
    name: "notes.tf",
    mimeType: "",
    buffer: Buffer.from("replaced\n"),
  });
  await uploads.getByText("There is a file with this name.").waitFor();
  expect((await run(place, ["ssh", "shelf", "--", "cat files/notes.tf"])).trim()).toContain("hello");
  await uploads.getByRole("button", { name: "Replace notes.tf" }).click();
  await uploads.getByRole("listitem").filter({ hasText: "notes.tf" }).getByText("uploaded").waitFor();
  // No temporary file remains.
  const left = await run(place, ["ssh", "shelf", "--", "cat files/notes.tf; ls -A files"]);
  expect(left.trim()).toBe("replaced\ndata\ndot.png\nlarge.bin\nlink\nnotes.tf\npage.html\nsrc");

  const transfer = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(["dropped"], "dropped.txt"));
    return data;
  });
  await list(page).dispatchEvent("drop", { dataTransfer: transfer });
  await row(page, "dropped.txt").waitFor();
});

it("creates, renames and deletes", async () => {
  const { page } = await open(place, token);
  await visit(page);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New folder" }).click();
  await dialog.getByLabel("Name").fill("a/b");
  await dialog.getByText("A name has no slash.").waitFor();
  await axe(page, "a new folder");
  await dialog.getByLabel("Name").fill("drafts");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("button", { name: "Rename drafts" }).click();
  await dialog.getByLabel("Name").fill("src");
  await dialog.getByRole("button", { name: "Rename" }).click();
  await dialog.getByText("There is a file or folder with this name.").waitFor();
  await dialog.getByLabel("Name").fill("plans");
  await dialog.getByRole("button", { name: "Rename" }).click();
  await page.getByRole("button", { name: "Delete plans" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await row(page, "plans").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Delete src" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await dialog.getByText("not empty").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  expect((await run(place, ["ssh", "shelf", "--", "ls files/src"])).trim()).toBe("inner.txt");
});

// localFolder makes a folder on this machine, as users have one on theirs.
function localFolder(name: string, files: Record<string, string>): string {
  const top = join(mkdtempSync(join(tmpdir(), "upload-")), name);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(top, path, ".."), { recursive: true });
    writeFileSync(join(top, path), content);
  }
  return top;
}

it("uploads a folder, and replaces its files when asked", async () => {
  await run(place, ["ssh", "shelf", "--", "mkdir -p files/app && echo old > files/app/taken.txt"]);
  const { page } = await open(place, token);
  await visit(page);
  const uploads = page.getByRole("list", { name: "Uploads" });
  const app = localFolder("app", { "a.txt": "one", "src/deep/b.txt": "two", "taken.txt": "new" });
  await page.getByLabel("Folder to upload").setInputFiles(app);
  await uploads.getByText("2 of 3 files uploaded, 1 already there").waitFor();
  await axe(page, "the upload of a folder");
  const content = async () =>
    (await run(place, ["ssh", "shelf", "--", "cd files/app && cat a.txt src/deep/b.txt taken.txt"])).trim();
  expect(await content()).toBe("onetwoold");
  await uploads.getByRole("button", { name: "Replace 1 in app" }).click();
  await uploads.getByText("3 of 3 files uploaded").waitFor();
  expect(await content()).toBe("onetwonew");
});

it("downloads a folder as an archive", async () => {
  await run(place, ["ssh", "shelf", "--", "mkdir -p files/pack/deep && echo one > files/pack/deep/one.txt"]);
  const { page } = await open(place, token);
  await visit(page);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Download pack" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("pack.zip");
  const bytes = readFileSync(await download.path()).toString("latin1");
  expect(bytes.startsWith("PK")).toBe(true);
  expect(bytes).toContain("pack/deep/one.txt");
});

it("uploads dropped folders, but no name that leads elsewhere", async () => {
  const { page } = await open(place, token);
  await visit(page);
  // A browser makes entries for what is dragged from a desktop only.
  await page.evaluate(() => {
    const file = (name: string) => ({
      name,
      isFile: true,
      file: (yes: (f: File) => void) => yes(new File(["x"], name)),
    });
    const folder = (name: string, entries: object[]) => ({
      name,
      isDirectory: true,
      createReader: () => ({ readEntries: (yes: (some: object[]) => void) => yes(entries.splice(0, 1)) }),
    });
    const dropped = folder("tree", [file("good.txt"), folder("empty", []), file("..\\bad.txt"), file("bad\n.txt")]);
    const item = { kind: "file", webkitGetAsEntry: () => dropped, getAsFile: () => null };
    const event = new Event("drop", { bubbles: true });
    Object.assign(event, { dataTransfer: { items: [item], types: ["Files"] } });
    document.querySelector("table")!.dispatchEvent(event);
  });
  const uploads = page.getByRole("list", { name: "Uploads" });
  await uploads.getByText("2 of 4 files uploaded, 2 failed").waitFor();
  expect(await uploads.getByText("control character or a backslash").count()).toBe(2);
  await row(page, "tree").waitFor();
  const found = await run(place, ["ssh", "shelf", "--", "cd files && find tree | sort"]);
  expect(found.trim()).toBe("tree\ntree/empty\ntree/good.txt");
});

it("cancels the upload of a folder", async () => {
  const { page } = await open(place, token);
  await visit(page);
  let asked = 0;
  await page.route("**/files/content?*", () => void asked++); // never answered
  await page.getByLabel("Folder to upload").setInputFiles(localFolder("held", { "a.txt": "a", "b.txt": "b" }));
  const uploads = page.getByRole("list", { name: "Uploads" });
  await uploads.getByText("0 of 2 files uploaded").waitFor();
  await page.getByRole("progressbar", { name: /held.*\.txt/ }).waitFor();
  await uploads.getByRole("button", { name: "Cancel held", exact: true }).click();
  await uploads.waitFor({ state: "detached" });
  expect(asked).toBe(1);
  await page.unroute("**/files/content?*");
  expect((await run(place, ["ssh", "shelf", "--", "ls files"])).split("\n")).not.toContain("held");
});

it("fits a phone, in the dark", async () => {
  const { page } = await open(place, token, { width: 390, dark: true });
  await visit(page);
  await fits(page, "files");
  await axe(page, "files on a phone");
  await page.getByRole("button", { name: "notes.tf", exact: true }).click();
  await page.getByRole("region", { name: "Preview of notes.tf" }).waitFor();
  await fits(page, "files");
});

it("is for those who may connect, and says who did what", async () => {
  const email = "fil@example.com";
  const fil = await api<User>(place, token, "POST", "users", { username: "fil", email, password, name: "Fil" });
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email, password }),
  });
  const { session_token: theirs } = (await login.json()) as { session_token: string };
  const shelf = await api<Workspace>(place, token, "GET", "users/me/workspace/shelf");
  const agent = shelf.latest_build.resources.flatMap((r) => r.agents ?? [])[0]!;
  const asked = (headers: Record<string, string>) =>
    fetch(`${place.url}/api/v2/workspaceagents/${agent.id}/files`, { headers });
  expect((await asked({ "Coder-Session-Token": theirs })).status).toBe(404);
  await api(place, token, "PATCH", `workspaces/${shelf.id}/acl`, { user_roles: { [fil.id]: "use" } });
  const { page } = await open(place, theirs);
  await visit(page);

  await expect
    .poll(async () => {
      const log = await api<ConnectionLogsResponse>(
        place,
        token,
        "GET",
        `connectionlog?q=${encodeURIComponent("username:fil status:completed")}`,
      );
      return log.connection_logs.map((l) => l.slug_or_port);
    })
    .toContain("files list");
});

it("says what to do when the workspace is stopped", async () => {
  await run(place, ["stop", "shelf", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/shelf?tab=files");
  await page.getByText("The workspace is not running").waitFor();
});
