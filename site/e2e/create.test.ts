import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api, run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

const source = `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_parameter" "region" {
  name         = "region"
  display_name = "Region"
  description  = "Where it runs <b>now</b>: see [the map](https://example.com/map)."
  form_type    = "radio"
  default      = "eu"
  order        = 1
  option {
    name        = "Europe"
    value       = "eu"
    description = "Near the office"
    icon        = "/emojis/1f1ea-1f1fa.png"
  }
  option {
    name  = "America"
    value = "us"
  }
}
data "coder_parameter" "zone" {
  name         = "zone"
  display_name = "Zone"
  form_type    = "dropdown"
  default      = data.coder_parameter.region.value == "eu" ? "eu-1" : "us-1"
  order        = 2
  mutable      = true
  dynamic "option" {
    for_each = data.coder_parameter.region.value == "eu" ? ["eu-1", "eu-2"] : ["us-1", "us-2", "us-3"]
    content {
      name  = upper(option.value)
      value = option.value
    }
  }
}
data "coder_parameter" "hostname" {
  name      = "hostname"
  form_type = "input"
  order     = 3
  mutable   = true
  validation {
    regex = "^[a-z][a-z0-9-]*$"
    error = "Lower-case letters, digits and hyphens."
  }
}
data "coder_parameter" "notes" {
  name      = "notes"
  form_type = "textarea"
  default   = ""
  order     = 4
  mutable   = true
}
data "coder_parameter" "cpus" {
  name      = "cpus"
  type      = "number"
  form_type = "slider"
  default   = 2
  order     = 5
  mutable   = true
  validation {
    min = 1
    max = 8
  }
}
data "coder_parameter" "gpu" {
  name      = "gpu"
  type      = "bool"
  form_type = "checkbox"
  default   = false
  order     = 6
  mutable   = true
}
data "coder_parameter" "backup" {
  name      = "backup"
  type      = "bool"
  form_type = "switch"
  default   = true
  order     = 7
  mutable   = true
}
data "coder_parameter" "tools" {
  name      = "tools"
  type      = "list(string)"
  form_type = "multi-select"
  default   = jsonencode(["git"])
  order     = 8
  mutable   = true
  option {
    name  = "Git"
    value = "git"
  }
  option {
    name  = "Vim"
    value = "vim"
  }
}
data "coder_parameter" "labels" {
  name      = "labels"
  type      = "list(string)"
  form_type = "tag-select"
  default   = jsonencode([])
  order     = 9
  mutable   = true
}
data "coder_parameter" "reset" {
  name      = "reset"
  type      = "bool"
  form_type = "checkbox"
  default   = false
  ephemeral = true
  mutable   = true
  order     = 10
}
data "coder_workspace_preset" "big" {
  name       = "Big machine"
  parameters = { cpus = "8", region = "us", zone = "us-3" }
}
resource "terraform_data" "x" {
  input = "\${data.coder_parameter.zone.value} \${data.coder_parameter.labels.value}"
}
`;

beforeAll(async () => {
  const dir = join(place.dir, "kinds");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "main.tf"), source);
  await run(place, ["templates", "push", "kinds", "-d", dir, "-y"]);
});

it("has a form for every kind of parameter, checked as it is filled in", async () => {
  const { page } = await open(place, token);
  await page.goto("/templates/kinds/workspace");
  await page.getByRole("radio", { name: /Europe/ }).waitFor();
  // Descriptions are Markdown, and markup in them is text.
  await page.getByText("Where it runs <b>now</b>: see the map.").waitFor();
  expect(await page.getByRole("link", { name: "the map" }).getAttribute("href")).toBe("https://example.com/map");
  await axe(page, "every kind of parameter");
  expect(await page.locator("main b").count()).toBe(0);
  await page.getByLabel("Name", { exact: true }).fill("kinds");

  // Options that depend on another parameter.
  const zone = page.getByRole("combobox", { name: "Zone" });
  await page.waitForFunction(() => document.querySelector("select#parameter-zone-input")?.children.length === 2);
  await page.getByRole("radio", { name: /^America/ }).check();
  await page.waitForFunction(() => document.querySelector("select#parameter-zone-input")?.children.length === 3);
  await zone.selectOption("us-3");

  const hostname = page.getByRole("textbox", { name: "hostname" });
  await hostname.fill("Not Good");
  await page.getByText("Lower-case letters, digits and hyphens.").waitFor();
  expect(await hostname.getAttribute("aria-invalid")).toBe("true");
  await page.getByRole("button", { name: "Create workspace" }).click();
  await page.waitForFunction(() => document.activeElement?.id === "parameter-hostname-input");
  expect(page.url()).toContain("/templates/kinds/workspace");
  await hostname.fill("good-one");
  // At once: what the server has found wrong was about another value.
  expect(await hostname.getAttribute("aria-invalid")).not.toBe("true");
  await page.getByRole("textbox", { name: "notes" }).fill("two\nlines");
  await page.getByRole("slider", { name: "cpus" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("group", { name: "gpu" }).getByRole("checkbox").check();
  await page.getByRole("switch", { name: "backup" }).click();
  await page.getByRole("checkbox", { name: "Vim" }).check();
  await page.getByRole("textbox", { name: "labels" }).fill("red");
  await page.keyboard.press("Enter");
  await page.getByRole("textbox", { name: "labels" }).pressSequentially("blue,");
  await page.getByRole("group", { name: "For this build only" }).waitFor();
  await picture(page, "create");
  await page.getByRole("button", { name: "Create workspace" }).click();
  await page.waitForURL("**/@ada/kinds");
  await page.getByRole("button", { name: "Show log" }).waitFor({ timeout: 60_000 });
  const workspace = await api<{ latest_build: { id: string; job: { status: string } } }>(
    place,
    token,
    "GET",
    "users/me/workspace/kinds",
  );
  expect(workspace.latest_build.job.status).toBe("succeeded");
  const values = await api<{ name: string; value: string }[]>(
    place,
    token,
    "GET",
    `workspacebuilds/${workspace.latest_build.id}/parameters`,
  );
  expect(Object.fromEntries(values.filter((v) => v.name !== "reset").map((v) => [v.name, v.value]))).toEqual({
    region: "us",
    zone: "us-3",
    hostname: "good-one",
    notes: "two\nlines",
    cpus: "3",
    gpu: "true",
    backup: "false",
    tools: '["git","vim"]',
    labels: '["red","blue"]',
  });

  // The next workspace can begin with the same values.
  await page.goto("/templates/kinds/workspace");
  expect(await page.getByRole("radio", { name: /Europe/ }).isChecked()).toBe(true);
  await page.getByRole("button", { name: "Use earlier values" }).click();
  await page.locator("input:checked[value=us]").waitFor();
  expect(await page.getByRole("textbox", { name: "hostname" }).inputValue()).toBe("good-one");

  // What was chosen once stays; the rest can be changed.
  await page.goto("/@ada/kinds?tab=settings");
  await page.getByText("Set when the workspace was created.").waitFor();
  expect(await page.getByRole("radio", { name: /Europe/ }).isDisabled()).toBe(true);
  expect(await page.getByRole("textbox", { name: "hostname" }).isDisabled()).toBe(false);
});

it("starts with the default preset", async () => {
  const { page } = await open(place, token, { width: 390 });
  // The server's first answer comes just after the preset has been chosen, and knows nothing of it.
  let choose = () => {};
  const chosen = new Promise<void>((resolve) => (choose = resolve));
  const worked = new Promise<void>((resolve) => {
    void page.route(
      "**/dynamic-parameters/evaluate",
      async (route) => {
        const response = await route.fetch();
        resolve();
        await chosen;
        await route.fulfill({ response });
      },
      { times: 1 },
    );
  });
  await page.goto("/templates/kinds/workspace?param.hostname=linked");
  await worked;
  const preset = page.getByRole("radio", { name: /Big machine/ });
  await preset.check();
  choose();
  await page.getByRole("radio", { name: /^America/ }).waitFor();
  await page.waitForFunction(
    () => (document.querySelector("select#parameter-zone-input") as HTMLSelectElement | null)?.value === "us-3",
  );
  expect(await page.getByRole("radio", { name: /^America/ }).isChecked()).toBe(true);
  expect(await page.getByRole("textbox", { name: "hostname" }).inputValue()).toBe("linked");
  // The card says what the preset sets, in the form's words, once the form knows the zones of the preset's region.
  await page.waitForFunction(() =>
    [...document.querySelectorAll("label")].some((label) =>
      /Big machine\s+cpus 8\s+Region America\s+Zone US-3/.test(label.innerText),
    ),
  );
  // The workspace of the test before has the template's name.
  await page.locator('input[name="name"][value="kinds-2"]').waitFor();
  await fits(page, "the form");
  await axe(page, "the form with a preset");
  await page.getByRole("button", { name: "Create workspace" }).click();
  await page.waitForURL("**/@ada/kinds-2");
});

it("makes a badge whose link creates a workspace after one question", async () => {
  const { page } = await open(place, token);
  await page.goto("/templates/kinds/embed");
  await page.getByRole("radio", { name: /^America/ }).check();
  await page.getByLabel("Name of the workspace").fill("badged");
  await page.getByRole("checkbox", { name: /Ask only whether/ }).check();
  await page.getByRole("textbox", { name: "hostname" }).fill("from-a-link");
  const link = page.getByLabel("Link", { exact: true });
  await page.waitForFunction(() => document.querySelector("select#parameter-zone-input")?.children.length === 3);
  const address = new URL(await link.inputValue());
  expect(Object.fromEntries(address.searchParams)).toEqual({
    mode: "auto",
    name: "badged",
    "param.region": "us",
    "param.hostname": "from-a-link",
  });
  const markdown = await page.getByLabel("Markdown", { exact: true }).inputValue();
  expect(markdown).toContain(`/open-in-coder.svg)](${address.href})`);
  await axe(page, "embed");
  await fits(page, "embed");

  const dialog = page.getByRole("dialog");
  await page.goto(address.href);
  await dialog.getByText("Create the workspace badged?").waitFor();
  await dialog.getByText("hostname: from-a-link").waitFor();
  await axe(page, "question of a link");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  const made = await page.request.get("/api/v2/users/me/workspace/badged");
  expect(made.status()).toBe(404); // a link creates nothing without an answer
  expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("badged"); // and the form is still there
  await page.reload();
  await dialog.getByRole("button", { name: "Create workspace" }).click();
  await page.waitForURL("**/@ada/badged");
  await page.getByRole("button", { name: "Show log" }).waitFor({ timeout: 60_000 });

  await page.goto(address.href); // a second time, it leads to the workspace
  await page.getByText("You have a workspace named badged").waitFor();
  expect(await dialog.count()).toBe(0);
  await page.getByRole("link", { name: "Open badged" }).click();
  await page.waitForURL("**/@ada/badged");

  address.searchParams.delete("name");
  await page.goto(address.href);
  await dialog.getByText(/Create the workspace kinds-[0-9a-f]{4}\?/).waitFor();
});
