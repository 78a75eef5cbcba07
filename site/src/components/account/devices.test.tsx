// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { UserDevice, WireGuardGateway } from "~/api/types";
import Devices, { lifetimes } from "./devices";

const day = 24 * 3600 * 1e9;

const gateway: WireGuardGateway = {
  enabled: true,
  address: "wg.example.com:51820",
  public_key: "cHVibGlj",
  prefix: "fd00::/48",
  dns: "fd00::53",
  mtu: 1280,
  max_device_lifetime: 90 * day,
  regions: [],
};

const phone: UserDevice = {
  id: "1",
  name: "phone",
  public_key: `${"A".repeat(42)}w=`,
  address: "fd00::1",
  region: "",
  created_at: new Date().toISOString(),
  expires_at: new Date(Date.now() + 3600_000).toISOString(),
  last_used_at: null,
  endpoint: "",
};

let client: QueryClient;

beforeEach(() => {
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
  client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

// show renders the section with devices, and returns what is sent.
function show(devices: UserDevice[], at: WireGuardGateway = gateway) {
  const sent = vi.fn((path: string, request?: { method?: string; body?: string }) => {
    if (request?.method === "DELETE") return Promise.resolve(new Response(null, { status: 204 }));
    const answer = path.endsWith("wireguard-gateway") ? at : devices;
    const made = request?.body && { ...phone, ...(JSON.parse(request.body) as object) };
    return Promise.resolve(new Response(JSON.stringify(made || answer)));
  });
  vi.stubGlobal("fetch", sent);
  render(
    <QueryClientProvider client={client}>
      <Devices />
    </QueryClientProvider>,
  );
  return (method: string) => sent.mock.calls.filter(([, request]) => request?.method === method);
}

const name = (text: string) => fireEvent.change(screen.getByLabelText("Name"), { target: { value: text } });
const submit = () => fireEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Add device" }));
const configuration = async () => (await screen.findByLabelText<HTMLTextAreaElement>("Configuration")).value;

it("lists devices, and says which have expired or were never used", async () => {
  const past = new Date(Date.now() - 3600_000).toISOString();
  show([phone, { ...phone, id: "2", name: "old", expires_at: past, last_used_at: past }]);
  const row = (text: string) => within(screen.getByText(text).closest("tr")!);
  await screen.findByText("phone");
  row("phone").getByText("Never");
  row("phone").getByText("fd00::1");
  expect(row("phone").queryByText("Expired")).toBeNull();
  row("old").getByText("Expired");
  expect(row("old").queryByText("Never")).toBeNull();
});

it.each([
  ["none", []],
  ["some", [phone]],
])("adds no devices to a deployment without a gateway, with %s", async (_, devices) => {
  show(devices, { ...gateway, enabled: false });
  await screen.findByText(/no WireGuard gateway/);
  expect(screen.queryByRole("button", { name: "Add device" })).toBeNull();
  expect(screen.queryAllByRole("button", { name: "Remove device phone" })).toHaveLength(devices.length);
});

it("offers lifetimes up to the longest", () => {
  expect(lifetimes(90 * day).map((l) => l / day)).toEqual([1, 7, 30, 90]);
  expect(lifetimes(45 * day).map((l) => l / day)).toEqual([1, 7, 30, 45]);
  expect(lifetimes(day / 2).map((l) => l / day)).toEqual([0.5]);
});

it("makes a key pair, sends the public key only, and forgets the configuration", async () => {
  const sent = show([]);
  await screen.findByText("No devices");
  fireEvent.click(screen.getByRole("button", { name: "Add device" }));
  name("phone");
  fireEvent.change(screen.getByLabelText("Lifetime"), { target: { value: String(7 * day) } });
  submit();
  const text = await configuration();
  const privateKey = /^PrivateKey = (\S{43}=)$/m.exec(text)![1]!;
  screen.getByRole("img", { name: "QR code of the configuration of phone" });
  screen.getByText(/It cannot be shown again/);
  const posts = sent("POST");
  expect(posts).toHaveLength(1);
  const body = JSON.parse(posts[0]![1]!.body!) as { public_key: string };
  expect(body).toEqual({ name: "phone", lifetime: 7 * day, public_key: expect.stringMatching(/^\S{43}=$/) as string });
  expect(body.public_key).not.toBe(privateKey);
  fireEvent.click(screen.getByRole("button", { name: "Done" }));
  await vi.waitFor(() => expect(client.getMutationCache().getAll()).toEqual([]));
  expect(document.body.innerHTML).not.toContain(privateKey);
});

it("takes the public key of another pair, and sends nothing else", async () => {
  const sent = show([]);
  await screen.findByText("No devices");
  fireEvent.click(screen.getByRole("button", { name: "Add device" }));
  name("router");
  fireEvent.click(screen.getByRole("checkbox", { name: /I have a key pair/ }));
  const paste = (text: string) => fireEvent.change(screen.getByLabelText("Public key"), { target: { value: text } });
  paste(`[Interface] PrivateKey = ${phone.public_key}`);
  submit();
  await screen.findByText("This is not a public key of WireGuard. It was not sent.");
  expect(sent("POST")).toHaveLength(0);
  paste(` ${phone.public_key}\n`);
  submit();
  expect(await configuration()).toContain("# PrivateKey = the key that belongs to the registered public key\n");
  expect(screen.queryByRole("img")).toBeNull(); // it lacks the private key
  expect(JSON.parse(sent("POST")[0]![1]!.body!)).toMatchObject({ name: "router", public_key: phone.public_key });
});

it("adds a device for a region, whose gateway its configuration names", async () => {
  const sydney = {
    region: "sydney",
    display_name: "Sydney",
    address: "syd.example.com:51820",
    public_key: "c3lkbmV5",
  };
  const sent = show([], { ...gateway, enabled: false, regions: [sydney] });
  await screen.findByText("No devices");
  fireEvent.click(screen.getByRole("button", { name: "Add device" }));
  name("phone");
  screen.getByText(/This region could connect as you/);
  submit();
  const text = await configuration();
  expect(text).toContain("PublicKey = c3lkbmV5\n");
  expect(text).toContain("Endpoint = syd.example.com:51820\n");
  expect(JSON.parse(sent("POST")[0]![1]!.body!)).toMatchObject({ region: "sydney" });
});

it("renames a device", async () => {
  const sent = show([phone]);
  fireEvent.click(await screen.findByRole("button", { name: "Rename device phone" }));
  name("tablet");
  fireEvent.click(screen.getByRole("button", { name: "Rename" }));
  await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(sent("PATCH").map(([path, request]) => [path, request!.body])).toEqual([
    ["/api/v2/users/me/devices/1", '{"name":"tablet"}'],
  ]);
});

it("removes a device once that is confirmed", async () => {
  const sent = show([phone]);
  fireEvent.click(await screen.findByRole("button", { name: "Remove device phone" }));
  expect(sent("DELETE")).toHaveLength(0);
  fireEvent.click(screen.getByRole("button", { name: "Remove" }));
  await vi.waitFor(() => expect(sent("DELETE").map(([path]) => path)).toEqual(["/api/v2/users/me/devices/1"]));
});
