// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { User, Workspace } from "~/api/types";
import { UserContext } from "~/components/ui/user";
import UpdateDialog from "./update-dialog";

configure({ asyncUtilTimeout: 30_000 }); // of a busy machine

const resource = (name: string, workspace_transition = "start") => ({
  id: `${name} ${workspace_transition}`,
  type: "docker_volume",
  name,
  icon: "",
  hide: false,
  workspace_transition,
});

const workspace = (more: object = {}) =>
  ({
    id: "dev",
    name: "dev",
    owner_id: "ada",
    template_active_version_id: "third",
    latest_build: {
      id: "build",
      status: "running",
      template_version_id: "first",
      resources: [resource("home"), resource("cache"), resource("old")],
    },
    ...more,
  }) as unknown as Workspace;

const version = (name: string, day: number, message: string, status = "succeeded") => ({
  id: name,
  name,
  message,
  template_id: "t",
  created_at: `2026-11-0${day}T00:00:00Z`,
  created_by: { username: "tom" },
  job: { file_id: "same", status },
});
const versions = [
  version("third", 4, "bigger disks"),
  version("broken", 3, "does not work", "failed"),
  version("second", 2, ""),
  version("first", 1, "the first"),
];

const parameter = (name: string, more: object = {}) => ({
  name,
  type: "string",
  form_type: "input",
  mutable: true,
  required: true,
  ephemeral: false,
  order: 0,
  options: [],
  validations: [],
  diagnostics: [],
  value: { valid: false, value: "" },
  default_value: { valid: false, value: "" },
  ...more,
});

const running = { id: "job", status: "running", completed_at: null, waiting_reason: "" };
const planOf = (status: string, changes: object[] = [], more: object = {}) => ({
  id: "job",
  job: { ...running, status, completed_at: status === "running" ? null : "2026-11-05T00:00:00Z", ...more },
  changes,
});
const change = (action: string, address: string, more: object = {}) => ({
  action,
  address,
  attributes: [],
  loses_data: false,
  ...more,
});
let answers: Record<string, unknown>;
let sent: { route: string; body: unknown }[];

beforeEach(() => {
  sent = [];
  answers = {
    "GET templateversions/first": versions[3],
    "GET templateversions/third": versions[0],
    "GET templates/t/versions": versions,
    "GET workspacebuilds/build/parameters": [{ name: "region", value: "eu", masked: false }],
    "GET templateversions/first/rich-parameters": [{ name: "region" }],
    "GET templateversions/first/resources": [resource("home"), resource("cache"), resource("home", "stop")],
    "GET templateversions/third/resources": [resource("usual")],
    "POST templateversions/third/dynamic-parameters/evaluate": { parameters: [parameter("region")], diagnostics: [] },
    "POST workspaces/dev/plan": planOf("running"),
    "GET workspaces/dev/plan/job": planOf("succeeded", [
      change("no-op", "docker_volume.cache"),
      change("replace", "docker_volume.home", { attributes: ["name", "driver"], loses_data: true }),
      change("delete", "docker_volume.old", { loses_data: true }),
      change("delete", "docker_network.old"),
      change("update", "coder_agent.main", { attributes: ["env"] }),
      change("create", 'docker_volume.new["a"]'),
      change("read", "data.http.ip"),
    ]),
    "GET workspaces/dev/plan/job/logs": [{ output: "Planning" }, { output: "No disk is left." }],
    "PATCH workspaces/dev/plan/job/cancel": {},
    "GET files/same": new ArrayBuffer(0),
  };
  vi.stubGlobal("fetch", async (path: string, { method, body }: RequestInit) => {
    const route = `${method} ${path.replace("/api/v2/", "").replace(/\?.*/, "")}`;
    if (method !== "GET") sent.push({ route, body: body && (JSON.parse(body as string) as unknown) });
    const answer = answers[route];
    if (answer === undefined) return Response.json({ message: `${route} is not for you.` }, { status: 404 });
    return answer instanceof ArrayBuffer ? new Response(answer) : Response.json(answer);
  });
  HTMLDialogElement.prototype.showModal = function () {
    this.open = true;
  };
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const confirmed = vi.fn(() => Promise.resolve());

async function show(w = workspace(), me = "ada") {
  confirmed.mockClear();
  render(
    <QueryClientProvider client={new QueryClient()}>
      <UserContext value={{ id: me, roles: [] } as unknown as User}>
        <UpdateDialog workspace={w} onConfirm={confirmed} onClose={() => {}} />
      </UserContext>
    </QueryClientProvider>,
  );
  return within(await screen.findByRole("dialog", { name: "Update dev?" }));
}

const planned = () => sent.filter(({ route }) => route.endsWith("/plan")).map(({ body }) => body);

it("names the versions between with their messages, and what the plan says", async () => {
  const dialog = await show();
  expect(dialog.getByText(/^From version/).textContent).toBe(
    "From version first to third. The update stops the workspace and starts it again: running programs end.",
  );
  await dialog.findByText("bigger disks");
  const said = within(dialog.getByRole("list", { name: "Versions" })).getAllByRole("listitem");
  expect(said.map((v) => /^(\S+) by tom, .* ago(.*)$/.exec(v.textContent!)?.slice(1))).toEqual([
    ["third", "bigger disks"],
    ["second", "No message"],
  ]);
  await dialog.findByText(/^From a plan with/);
  const lists = dialog.getAllByRole("list").filter((l) => l.getAttribute("aria-label") !== "Versions");
  expect(
    lists.map((l) => [
      l.getAttribute("aria-label"),
      ...within(l)
        .getAllByRole("listitem")
        .map((item) => item.textContent),
    ]),
  ).toEqual([
    ["Destroyed and created anew", "docker_volume.home because of name, driver"],
    ["Deleted", "docker_volume.old", "docker_network.old"],
    ["Changed in place", "coder_agent.main changes env"],
    ["Created", 'docker_volume.new["a"]'],
  ]);
  dialog.getByText("1 resource unchanged.");
  expect(dialog.getByText("Data would be lost").parentElement!.textContent).toBe(
    "Data would be lost" +
      "1 resource will be destroyed and created anew: docker_volume.home — its data is lost.\n" +
      "1 resource will be deleted: docker_volume.old — its data is lost.",
  );
  expect(planned()).toEqual([{ template_version_id: "third", rich_parameter_values: [] }]);
  dialog.getByText("The files are the same.");
  fireEvent.click(dialog.getByRole("button", { name: "Update" }));
  await waitFor(() => expect(confirmed).toHaveBeenCalledWith([]));
});

it("asks for what is new or no longer allowed, and plans once that is known", async () => {
  const options = ["us", "asia"].map((value) => ({ name: value, description: "", icon: "", value: { value } }));
  answers["POST templateversions/third/dynamic-parameters/evaluate"] = {
    parameters: [parameter("region", { options, form_type: "dropdown" }), parameter("team"), parameter("old")],
    diagnostics: [],
  };
  answers["GET workspacebuilds/build/parameters"] = [
    { name: "region", value: "eu", masked: false },
    { name: "old", value: "stays", masked: false },
  ];
  const dialog = await show();
  const team = await dialog.findByLabelText("team");
  expect(dialog.queryByLabelText("old")).toBeNull();
  fireEvent.click(dialog.getByRole("button", { name: "Update" }));
  await dialog.findByText("Enter a value.");
  expect(confirmed).not.toHaveBeenCalled();
  expect(planned()).toEqual([]);
  fireEvent.change(dialog.getByLabelText("region"), { target: { value: "us" } });
  fireEvent.change(team, { target: { value: "red" } });
  await dialog.findByText(/^From a plan with/);
  expect(planned()).toEqual([
    {
      template_version_id: "third",
      rich_parameter_values: [
        { name: "region", value: "us" },
        { name: "team", value: "red" },
      ],
    },
  ]);
  fireEvent.click(dialog.getByRole("button", { name: "Update" }));
  await waitFor(() =>
    expect(confirmed).toHaveBeenCalledWith([
      { name: "region", value: "us" },
      { name: "team", value: "red" },
    ]),
  );
});

it("cancels the plan when it is closed", async () => {
  answers["GET workspaces/dev/plan/job"] = planOf("running", [], { waiting_reason: "no provisioner is free" });
  const dialog = await show();
  await dialog.findByText("No provisioner is free.");
  cleanup();
  await waitFor(() => expect(sent.at(-1)?.route).toBe("PATCH workspaces/dev/plan/job/cancel"));
});

it("says why there is no plan, with its log, and shows what the import found", async () => {
  answers["GET workspaces/dev/plan/job"] = planOf("failed", [], { error: "No disk." });
  const dialog = await show();
  await dialog.findByText("No disk.");
  dialog.getByText(/No disk is left\./);
  await dialog.findByText(/^As the import of third found them/);
  dialog.getByText("You can update to third without a plan.");
  answers["GET workspaces/dev/plan/job"] = planOf("succeeded", [change("no-op", "docker_volume.home")]);
  fireEvent.click(dialog.getByRole("button", { name: "Plan again" }));
  await dialog.findByText("The update changes no resource.");
});

it("says why the server refuses a plan", async () => {
  answers["POST workspaces/dev/plan"] = undefined;
  const dialog = await show(workspace(), "bob");
  await dialog.findByText("POST workspaces/dev/plan is not for you.");
  await dialog.findByText(/^As the import of third found them/);
});

it("still updates if the template is hidden", async () => {
  delete answers["GET templateversions/third"];
  const dialog = await show(workspace({ latest_build: { ...workspace().latest_build, status: "stopped" } }));
  dialog.getByText(/^The update starts the workspace\. What the version changes cannot be shown/);
  fireEvent.click(dialog.getByRole("button", { name: "Update" }));
  await waitFor(() => expect(confirmed).toHaveBeenCalledWith([]));
});
