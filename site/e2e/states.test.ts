// The settings of a workspace list the states that its builds left, for those who may restore one.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, open, withBrowser } from "./browser";
import { api, run, until } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

const source = (count: number) => `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
resource "terraform_data" "disk" {
  count = ${count}
}
`;

beforeAll(async () => {
  const dir = join(place.dir, "stated");
  mkdirSync(dir, { recursive: true });
  for (const count of [2, 3]) {
    writeFileSync(join(dir, "main.tf"), source(count));
    await run(place, ["templates", "push", "stated", "-d", dir, "-y"]);
    await run(place, count === 2 ? ["create", "stated", "-t", "stated", "-y"] : ["update", "stated"]);
  }
});

it("restores the state of an earlier build, and says what that means", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/stated?tab=settings");
  const table = page.getByRole("region", { name: "Terraform states" });
  const row = (build: number) => table.getByRole("row").filter({ hasText: `${build} · Start` });
  await row(3).getByText("current").waitFor(); // an update is a stop and a start
  await axe(page, "settings");
  const cells = await row(1).getByRole("cell").allInnerTexts();
  expect(cells[2]).toBe("ada");
  expect(Number(cells[3])).toBeGreaterThan(0);
  expect(cells[4]).toBe("2");
  expect(cells[5]).toMatch(/^[\d.]+ (B|KiB)$/);
  expect(await row(3).getByRole("cell").nth(4).innerText()).toBe("3");

  await row(1).getByRole("button", { name: "Restore" }).click();
  const question = page.getByRole("dialog", { name: "Restore the state of build 1?" });
  await question.getByText("from the 2 resources of that state").waitFor();
  await question.getByText("you must delete them yourself").waitFor();
  await question.getByRole("button", { name: "Cancel" }).click();
  expect((await builds()).length).toBe(3);

  await row(1).getByRole("button", { name: "Restore" }).click();
  await question.getByRole("button", { name: "Restore and build" }).click();
  await until("build 4 succeeded", async () => {
    const [latest] = await builds();
    return latest?.build_number === 4 && latest.job.status === "succeeded";
  });
  await page.goto("/@ada/stated?tab=settings");
  await row(4).getByText("current").waitFor();
});

it("shows states to owners of the deployment only", async () => {
  const email = "hal@example.com";
  await api(place, token, "POST", "users", { username: "hal", email, password });
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email, password }),
  });
  const { session_token: hal } = (await login.json()) as { session_token: string };
  const [template] = await api<{ id: string }[]>(place, token, "GET", "templates?q=name:stated");
  await api(place, hal, "POST", "users/me/workspaces", { name: "hals", template_id: template!.id });
  const { page } = await open(place, hal);
  await page.goto("/@hal/hals?tab=settings");
  await page.getByRole("heading", { name: "Autostop" }).waitFor();
  await page.waitForLoadState("networkidle");
  expect(await page.getByRole("heading", { name: "Terraform states" }).count()).toBe(0);
});

const id = async () => (await api<{ id: string }>(place, token, "GET", "users/me/workspace/stated")).id;

async function builds() {
  type Build = { build_number: number; job: { status: string } };
  return api<Build[]>(place, token, "GET", `workspaces/${await id()}/builds`);
}
