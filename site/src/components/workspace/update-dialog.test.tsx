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
    "POST templateversions/third/dry-run": running,
    "GET templateversions/third/dry-run/job": { ...running, status: "succeeded", completed_at: "2026-11-05T00:00:00Z" },
    "GET templateversions/third/dry-run/job/resources": [resource("home"), resource("cache"), resource("new")],
    "PATCH templateversions/third/dry-run/job/cancel": {},
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

const rows = (dialog: Awaited<ReturnType<typeof show>>) =>
  dialog
    .getAllByRole("row")
    .slice(1)
    .map((row) =>
      within(row)
        .getAllByRole("cell")
        .map((c) => c.textContent!.replace(/^D (?=\w)/, "")),
    )
    .map(([name, , fate]) => `${name!.trim()}: ${fate}`);

it("names the versions between with their messages, and what happens to the resources", async () => {
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
  await dialog.findByText(/^From a dry run/);
  expect(rows(dialog).map((r) => r.replace(/^.*?(home|cache|new|old)/, "$1"))).toEqual([
    "home: kept",
    "cache: made again",
    "new: created",
    "old: deleted",
  ]);
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
  const planned = () => sent.filter(({ route }) => route.endsWith("/dry-run")).map(({ body }) => body);
  expect(planned()).toEqual([]);
  fireEvent.change(dialog.getByLabelText("region"), { target: { value: "us" } });
  fireEvent.change(team, { target: { value: "red" } });
  await dialog.findByText(/^From a dry run/);
  expect(planned()).toEqual([
    {
      workspace_name: "dev",
      rich_parameter_values: [
        { name: "region", value: "us" },
        { name: "team", value: "red" },
        { name: "old", value: "stays" },
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
  answers["GET templateversions/third/dry-run/job"] = { ...running, waiting_reason: "no provisioner is free" };
  const dialog = await show();
  await dialog.findByText("No provisioner is free.");
  cleanup();
  await waitFor(() => expect(sent.at(-1)?.route).toBe("PATCH templateversions/third/dry-run/job/cancel"));
});

it("says why there is no plan, and shows what the import found", async () => {
  answers["GET templateversions/third/dry-run/job"] = {
    ...running,
    status: "failed",
    completed_at: "x",
    error: "No disk.",
  };
  const dialog = await show();
  await dialog.findByText("No disk.");
  dialog.getByText(/^As the import of third found them/);
});

it("plans nothing for another user's workspace", async () => {
  const dialog = await show(workspace(), "bob");
  await dialog.findByText(/^As the import of third found them/);
  expect(sent.map(({ route }) => route)).toEqual(["POST templateversions/third/dynamic-parameters/evaluate"]);
});

it("still updates if the template is hidden", async () => {
  delete answers["GET templateversions/third"];
  const dialog = await show(workspace({ latest_build: { ...workspace().latest_build, status: "stopped" } }));
  dialog.getByText(/^The update starts the workspace\. What the version changes cannot be shown/);
  fireEvent.click(dialog.getByRole("button", { name: "Update" }));
  await waitFor(() => expect(confirmed).toHaveBeenCalledWith([]));
});
