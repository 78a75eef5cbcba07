// A dev container on the page of its workspace: its state, the agent in it with its terminal, and recreating it. The
// programs docker and devcontainer are stand-ins that run the agent beside the other one:
// e2e/devcontainer_linux_test.go has a real engine.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, open, picture, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

const docker = `#!/bin/sh
fake=$HOME/fake
case $1 in
inspect)
	[ -e $fake/up ] || { echo 'Error: No such container: c0ffee' >&2; exit 1; }
	echo '[{"Id":"c0ffee","Name":"/box_1","State":{"Running":true},"Config":{"Image":"box"}}]' ;;
cp) mkdir -p $fake/root && tar -x -C $fake/root ;;
exec)
	shift
	while [ "$1" != c0ffee ]; do case $1 in *=*) export "$1" ;; esac; shift; done
	mkdir -p $fake/home && cd $fake/home
	HOME=$PWD exec $fake/root/.coder-agent/coder agent --agent-token-file /dev/stdin ;;
stop | rm) rm -f $fake/up; pkill -f fake/root/.coder-agent || true ;;
esac
`;

const devcontainer = `#!/bin/sh
[ ! -e $HOME/fake/broken ] || { echo '{"outcome":"error","message":"the image <b>cannot</b> be built"}'; exit 1; }
pkill -f fake/root/.coder-agent
touch $HOME/fake/up
echo '{"outcome":"success","containerId":"c0ffee","remoteUser":"","remoteWorkspaceFolder":"/tmp"}'
`;

beforeAll(async () => {
  const dir = join(place.dir, "boxes");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "docker"), docker);
  writeFileSync(join(dir, "devcontainer"), devcontainer);
  const program = (name: string) => `cat >fake/bin/${name} <<'PROGRAM'
\${file("\${path.module}/${name}")}
PROGRAM
chmod +x fake/bin/${name}`;
  writeFileSync(
    join(dir, "main.tf"),
    `${readFileSync(join(place.dir, "process", "main.tf"), "utf8")}
resource "coder_script" "fakes" {
  agent_id     = coder_agent.main.id
  display_name = "Fakes"
  run_on_start = true
  script       = <<-SCRIPT
cd && mkdir -p fake/bin project
${program("docker")}
${program("devcontainer")}
SCRIPT
}
resource "coder_env" "path" {
  agent_id = coder_agent.main.id
  name     = "PATH"
  value    = "$HOME/fake/bin:$PATH"
}
resource "coder_devcontainer" "box" {
  agent_id         = coder_agent.main.id
  workspace_folder = "$HOME/project"
}
resource "coder_app" "inside" {
  agent_id     = coder_devcontainer.box.subagent_id
  slug         = "inside"
  display_name = "Inside"
  command      = "echo agent-$CODER_WORKSPACE_AGENT_NAME; exec sh"
}
`,
  );
  await run(place, ["templates", "push", "boxes", "-d", dir, "-y"]);
  await run(place, ["create", "boxes", "-t", "boxes", "-y"]);
});

it("shows a dev container under its agent, opens apps in it, and recreates it", async () => {
  const { page, context } = await open(place, token);
  await page.goto("/@ada/boxes");
  const list = page.getByRole("list", { name: "Dev containers of main" });
  await list.getByText("running").waitFor();
  await list.getByText("box_1").waitFor();
  const tabs = page.getByRole("tablist", { name: "Agent box" });
  await tabs.waitFor();
  await page.getByText("in a dev container").waitFor();
  await axe(page, "a workspace with a dev container");
  await picture(page, "devcontainer");

  const opened = context.waitForEvent("page");
  await page.getByRole("link", { name: /^Inside/ }).click();
  const terminal = await opened;
  await terminal.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent?.includes("agent-box"));

  await run(place, ["ssh", "boxes", "--", "touch fake/broken"]);
  const recreate = async () => {
    await list.getByRole("button", { name: "Recreate box" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Recreate" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  await recreate();
  await list.getByText("error").waitFor();
  await list.getByText("the image <b>cannot</b> be built").waitFor();
  await run(place, ["ssh", "boxes", "--", "rm fake/broken"]);
  await recreate();
  await list.getByText("running").waitFor();
  expect(await run(place, ["ssh", "boxes.box", "--", "echo $CODER_WORKSPACE_AGENT_NAME"])).toBe("box\n");
});
