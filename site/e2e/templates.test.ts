import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, it } from "vitest";
import { axe, contentOf, fits, open, picture, rewrite, withBrowser } from "./browser";
import { api, run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

function folder(name: string, files: Record<string, string>): string {
  const dir = join(place.dir, name);
  mkdirSync(dir, { recursive: true });
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(join(dir, file, ".."), { recursive: true });
    writeFileSync(join(dir, file), text);
  }
  return dir;
}

const head = 'terraform {\n  required_providers {\n    coder = { source = "coder/coder" }\n  }\n}\n';

it("shows an import's error at its file and line", async () => {
  const dir = folder("broken", {
    "main.tf": `${head}resource "terraform_data" "x" {\n  input = var.nope\n}\n`,
    ".terraform/junk": "x",
  });
  const { page } = await open(place, token);
  await page.goto("/templates/new");
  await page.getByRole("button", { name: "Upload a folder" }).click();
  await page.getByLabel("Template folder").setInputFiles(dir);
  await page.getByText("broken: 1 file,").waitFor();
  await axe(page, "upload");
  await page.getByRole("button", { name: "Import" }).click();
  await page.getByText("Import failed").waitFor({ timeout: 60_000 });
  await page.getByText("main.tf, line 7").waitFor();
  expect(await page.getByRole("region", { name: "main.tf around line 7" }).innerText()).toContain("input = var.nope");
  await axe(page, "a failed import");
  await picture(page, "import-error");
});

it("uploads a folder, asks for its variables, and shows its markup as text", async () => {
  const markup = "<img src=x onerror=alert(1)><b>bold</b>";
  const dir = folder("asking", {
    "main.tf": `${head}
variable "zone" {
  type        = string
  description = "Where ${markup}"
}
variable "secret" {
  type      = string
  sensitive = true
  default   = "hush"
}
resource "terraform_data" "x" {
  input = var.zone
}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
`,
    "README.md": `# Asking\n\nA README with ${markup} and [a link](javascript:alert(1)).\n`,
    "scripts/start.sh": "echo started\n",
  });
  const { page } = await open(place, token);
  await page.goto("/templates/new");
  await page.getByRole("button", { name: "Upload a folder" }).click();
  await page.getByLabel("Template folder").setInputFiles(dir);
  await page.getByText("asking: 3 files,").waitFor();
  await page.getByRole("button", { name: "Import" }).click();
  await page.getByLabel("zone").fill("north", { timeout: 60_000 });
  await page.getByRole("button", { name: "Import with these values" }).click();
  await page.getByText("Import succeeded").waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Create template" }).click();

  await page.getByRole("heading", { name: "Asking", level: 2 }).waitFor();
  expect(await page.locator(".prose img, .prose b").count()).toBe(0);
  expect(await page.locator(".prose").innerText()).toContain(markup);
  expect(await page.locator('a[href^="javascript:"]').count()).toBe(0);
  await page.getByRole("link", { name: "Files" }).click();
  await page.getByRole("button", { name: "scripts/start.sh" }).click();
  await page.getByText("echo started").waitFor();
  await axe(page, "files");
  await page.getByRole("link", { name: "Resources" }).click();
  await page.getByText("terraform_data").waitFor();
  await page.getByRole("link", { name: "Variables" }).click();
  await page.getByRole("cell", { name: "north" }).waitFor();
  expect(await page.getByText("hush").count()).toBe(0);

  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByLabel("Display name").fill(markup);
  await page.getByLabel("Stop after (hours)").fill("8");
  await axe(page, "a template's settings");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { level: 1, name: markup }).waitFor();
  expect(await api(place, token, "GET", "organizations/default/templates/asking")).toMatchObject({
    display_name: markup,
    default_ttl_ms: 8 * 3_600_000,
  });
});

it("makes templates of a starter, which keep its icon and texts and have names of their own", async () => {
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/templates/new");
  await page.getByText("Choose a source: it suggests a name.").waitFor();
  await page.getByRole("radio", { name: /Processes on the provisioner/ }).check();
  await page.locator('input[value="process-2"]').waitFor();
  await fits(page, "the starters");
  await axe(page, "the starters");
  await page.getByRole("button", { name: "Import" }).click();
  await page.getByText("Import succeeded").waitFor({ timeout: 60_000 });
  expect(await page.getByRole("textbox", { name: "Name" }).count()).toBe(0); // it was asked for
  await page.getByText("Users see this when they create a workspace.").waitFor();
  await fits(page, "the new template");
  await axe(page, "the new template");

  // Meanwhile, the name is taken: only then it is asked for again.
  const version = new URL(page.url()).searchParams.get("version");
  await run(place, ["templates", "push", "process-2", "-d", join(place.dir, "process"), "-y"]);
  await page.getByRole("button", { name: "Create template" }).click();
  await page.getByText('A template named "process-2" already exists.').first().waitFor();
  await page.getByRole("textbox", { name: "Name" }).fill("process-3");
  await page.getByRole("button", { name: "Create template" }).click();
  await page.waitForURL("**/templates/process-3");
  await page.getByRole("heading", { name: "Processes on the provisioner's host", level: 1 }).waitFor();
  expect(await api(place, token, "GET", "organizations/default/templates/process-3")).toMatchObject({
    icon: "/icon/terminal.svg",
    description: expect.stringContaining("There is nothing to install"),
    active_version_id: version,
  });
  for (const name of ["process-2", "process-3"]) await run(place, ["templates", "delete", name, "-y"]);
});

it("creates a version and goes back to the old one", async () => {
  const dir = folder("asking", {
    "main.tf": `${head}variable "zone" {\n  type = string\n}\nresource "terraform_data" "y" {\n  input = var.zone\n}\n`,
  });
  const { page } = await open(place, token);
  await page.goto("/templates/asking");
  await page.getByRole("link", { name: "New version" }).click();
  await page.getByLabel("Template folder").setInputFiles(dir);
  await page.getByLabel("Message").fill("other resource");
  await page.getByRole("button", { name: "Import" }).click();
  await page.getByRole("button", { name: "Activate version" }).click({ timeout: 60_000 });
  await page.waitForURL("**/templates/asking");
  await page.getByRole("link", { name: "Versions" }).click();
  const rows = page.getByRole("table").getByRole("row");
  await rows.nth(1).getByText("active", { exact: true }).waitFor();
  expect(await rows.nth(1).innerText()).toContain("other resource");
  await rows.nth(2).getByRole("button", { name: "Activate" }).click();
  await rows.nth(2).getByText("active", { exact: true }).waitFor();
  await rows.nth(1).getByRole("link").click();
  await page.getByRole("heading", { name: "Import" }).waitFor();
  await axe(page, "a version");
});

it("edits a version's files, compares them with the active version, and archives versions", async () => {
  const { page } = await open(place, token);
  await page.goto("/templates/asking/versions");
  const rows = page.getByRole("table").getByRole("row");
  await rows.filter({ hasText: "active" }).getByRole("link").click();
  await page.getByRole("link", { name: "Edit files" }).click();
  const text = page.getByRole("textbox", { name: "main.tf", exact: true });
  const good = await contentOf(text);
  await page.getByText("Change a file to import a new version.").waitFor();
  await rewrite(text, `${good}resource "terraform_data" "z" {\n  input = var.nope\n}\n`);
  await axe(page, "the editor");
  // A path must stay inside the template.
  await page.getByRole("button", { name: "Add file" }).click();
  await page.getByLabel("Path").fill("../outside.tf");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("Enter a path inside the template").waitFor();
  await page.getByLabel("Path").fill("notes.md");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("textbox", { name: "notes.md", exact: true }).focus();
  await page.keyboard.type("Edited in the browser.\n");
  await page.getByRole("button", { name: "Rename notes.md" }).click();
  await page.getByLabel("Path").fill("docs/notes.md");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  // Another page does not lose the edits.
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Mesh" }).click();
  await page.goBack();
  await page.getByRole("button", { name: "Changes" }).click();
  const changed = page.getByRole("region", { name: "Changes of main.tf" });
  expect(await changed.innerText()).toContain("input = var.nope");
  await page.getByRole("region", { name: "Changes of docs/notes.md" }).waitFor();
  await axe(page, "the changes");
  await page.getByLabel("Name", { exact: true }).fill("edited");
  await page.getByRole("button", { name: "Import", exact: true }).click();
  // A version that failed opens at its error.
  await page.getByText("Import failed").waitFor({ timeout: 60_000 });
  await page.goto("/templates/asking/versions/edited");
  await page.getByRole("link", { name: "Edit files" }).click();
  await page.waitForURL("**/versions/edited/edit");
  await page.getByRole("button", { name: /^main\.tf, line \d+$/ }).waitFor();
  await rewrite(text, `${good}resource "terraform_data" "z" {\n  input = var.zone\n}\n`);
  await page.setViewportSize({ width: 390, height: 900 });
  await fits(page, "the editor");
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.getByLabel("Message").fill("a resource more");
  await page.getByRole("button", { name: "Import", exact: true }).click();
  await page.getByRole("button", { name: "Activate version" }).click({ timeout: 60_000 });
  await page.waitForURL("**/templates/asking");
  // The failed version is compared and archived.
  await page.goto("/templates/asking/versions/edited?tab=changes");
  await page.getByRole("region", { name: "Changes of main.tf" }).getByText("var.nope").waitFor();
  await page.getByRole("button", { name: "Archive" }).click();
  await page.getByRole("button", { name: "Unarchive" }).waitFor();
  await page.getByRole("link", { name: "All versions" }).click();
  await rows.filter({ hasText: "a resource more" }).getByText("active", { exact: true }).waitFor();
  expect(await page.getByRole("link", { name: "edited" }).count()).toBe(0);
  await page.getByLabel("Show archived").check();
  await page.getByRole("link", { name: "edited" }).click();
  await page.getByRole("button", { name: "Unarchive" }).click();
  await page.getByRole("button", { name: "Archive", exact: true }).waitFor();
});

it("deletes a template, unless it is in use", async () => {
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/templates");
  await page.getByRole("list", { name: "Templates" }).getByRole("link").first().waitFor();
  await fits(page, "templates");
  await axe(page, "templates");
  await page.goto("/templates/asking");
  await page.getByRole("button", { name: "More for asking" }).click();
  await page.getByRole("menuitem", { name: "Delete…" }).click();
  await page.getByLabel(/to confirm/).fill("asking");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.waitForURL("**/templates");
  await page.goto("/templates/asking");
  await page.getByText("Template not found").waitFor();
});
