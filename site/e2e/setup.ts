import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { type Place, run, Server, until } from "./server";

export const password = "Correct-Horse-9-Battery";

declare module "vitest" {
  interface ProvidedContext {
    place: Place;
    token: string; // the first user's
  }
}

// signUp makes the first user, as whom the command line acts, and the template that the tests' workspaces are made
// from.
export async function signUp(server: Server): Promise<string> {
  const { place } = server;
  await run(place, [
    "login",
    place.url,
    "--first-user-username",
    "ada",
    "--first-user-email",
    "ada@example.com",
    "--first-user-password",
    password,
  ]);
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email: "ada@example.com", password }),
  });
  const { session_token: token } = (await login.json()) as { session_token: string };
  return token;
}

// pushProcess makes the template that most tests use. It has no display name: pages show it as process.
export async function pushProcess(place: Place) {
  await run(place, ["templates", "init", "--id", "process", `${place.dir}/process`]);
  const readme = `${place.dir}/process/README.md`;
  writeFileSync(readme, readFileSync(readme, "utf8").replace(/^---\n[^]*?\n---\n/, ""));
  await run(place, ["templates", "push", "process", "-d", `${place.dir}/process`, "-y"]);
}

// pushHeld makes a template whose builds wait until a file exists. tags are those of its provisioner.
export async function pushHeld(place: Place, go: string, name = "held", tags: string[] = []) {
  const dir = join(place.dir, name);
  mkdirSync(dir);
  writeFileSync(
    join(dir, "main.tf"),
    `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "terraform_data" "made" {
  input = data.coder_workspace.me.transition
}
resource "terraform_data" "held" {
  depends_on = [terraform_data.made]
  provisioner "local-exec" {
    command = "echo is held; while [ ! -e ${go} ]; do sleep 0.1; done; echo is released"
  }
}
`,
  );
  const tagged = tags.flatMap((tag) => ["--provisioner-tag", tag]);
  await run(place, ["templates", "push", name, "-d", dir, "-y", ...tagged]);
}

// isHeld starts a build that waits for the file, and returns when it does.
export async function isHeld(place: Place, name: string, template = "held", user = "admin") {
  await run(place, ["create", name, "-t", template, "-y", "--no-wait"], user);
  await until("the build is held", async () => (await run(place, ["logs", name], user)).includes("is held"));
}

export default async function setup(project: TestProject) {
  const server = await Server.make();
  try {
    await server.start();
    const token = await signUp(server);
    await pushProcess(server.place);
    project.provide("place", server.place);
    project.provide("token", token);
  } catch (err) {
    console.error(server.log());
    await server.cleanup();
    throw err;
  }
  return () => server.cleanup();
}
