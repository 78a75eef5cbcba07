// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { UserSSHKey } from "~/api/types";
import { SSHKeys } from "./ssh-keys";

beforeEach(() => {
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const laptop: UserSSHKey = {
  id: "1",
  name: "laptop",
  type: "ssh-ed25519",
  fingerprint: "SHA256:abc",
  public_key: "ssh-ed25519 AAAA",
  created_at: new Date().toISOString(),
  expires_at: null,
  last_used_at: null,
  regions: [],
};

// show renders the section with keys, and returns what is sent.
function show(keys: UserSSHKey[]) {
  const sent = vi.fn((_path: string, request?: { method?: string; body?: string }) =>
    Promise.resolve(
      request?.method === "DELETE"
        ? new Response(null, { status: 204 })
        : new Response(request?.method === "POST" ? JSON.stringify(laptop) : JSON.stringify(keys)),
    ),
  );
  vi.stubGlobal("fetch", sent);
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <SSHKeys />
    </QueryClientProvider>,
  );
  return (method: string) => sent.mock.calls.filter(([, request]) => request?.method === method);
}

it("lists keys, and says which have expired or were never used", async () => {
  const past = new Date(Date.now() - 3600_000).toISOString();
  show([laptop, { ...laptop, id: "2", name: "old", expires_at: past, last_used_at: past }]);
  const row = (name: string) => within(screen.getByText(name).closest("tr")!);
  await screen.findByText("laptop");
  expect(row("laptop").getAllByText("Never")).toHaveLength(2);
  row("laptop").getByText("SHA256:abc");
  row("old").getByText("Expired");
  expect(row("old").queryByText("Never")).toBeNull();
});

it("says where the keys sign in", async () => {
  const gateway = {
    enabled: true,
    address: "coder.example.com:2222",
    host_key: "ssh-ed25519 AAAA",
    fingerprint: "SHA256:host",
  };
  const ca = { public_key: "b", previous_public_key: "a", known_hosts: ["@cert-authority b", "@cert-authority a"] };
  const answers: Record<string, unknown> = { "ssh-gateway": gateway, "ssh-host-ca": ca };
  vi.stubGlobal("fetch", (path: string) =>
    Promise.resolve(new Response(JSON.stringify(answers[path.split("/").pop()!] ?? []))),
  );
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <SSHKeys />
    </QueryClientProvider>,
  );
  const command = await screen.findByLabelText<HTMLInputElement>("SSH command");
  expect(command.value).toBe("ssh -p 2222 WORKSPACE@coder.example.com");
  screen.getByText("SHA256:host");
  const line = await screen.findByLabelText<HTMLInputElement>("Line for known_hosts");
  expect(line.value).toBe("@cert-authority b");
  const previous = screen.getByLabelText<HTMLInputElement>("Previous line for known_hosts");
  expect(previous.value).toBe("@cert-authority a");
});

it("adds a public key, and sends no private one", async () => {
  const sent = show([]);
  await screen.findByText("No SSH keys");
  fireEvent.click(screen.getByRole("button", { name: "Add SSH key" }));
  const paste = (text: string) => fireEvent.change(screen.getByLabelText("Public key"), { target: { value: text } });
  paste("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE\n-----END OPENSSH PRIVATE KEY-----");
  fireEvent.click(screen.getByRole("button", { name: "Add key" }));
  await screen.findByText("This is a private key. It was not sent.");
  expect(sent("POST")).toHaveLength(0);
  paste("ssh-ed25519 AAAA ada@laptop");
  fireEvent.change(screen.getByLabelText("Lifetime"), { target: { value: String(90 * 24 * 3600 * 1e9) } });
  fireEvent.click(screen.getByRole("button", { name: "Add key" }));
  await vi.waitFor(() => expect(screen.queryByRole("button", { name: "Add key" })).toBeNull());
  expect(JSON.parse(sent("POST")[0]![1]!.body!)).toEqual({
    public_key: "ssh-ed25519 AAAA ada@laptop",
    name: "",
    lifetime: 90 * 24 * 3600 * 1e9,
  });
});

it("offers no lifetime beyond the longest of the deployment", async () => {
  const longest = 45 * 24 * 3600 * 1e9;
  const sent = vi.fn((path: string, _request?: { method?: string; body?: string }) =>
    Promise.resolve(
      new Response(JSON.stringify(path.endsWith("ssh-gateway") ? { enabled: false, max_key_lifetime: longest } : [])),
    ),
  );
  vi.stubGlobal("fetch", sent);
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <SSHKeys />
    </QueryClientProvider>,
  );
  fireEvent.click(await screen.findByRole("button", { name: "Add SSH key" }));
  await screen.findByRole("option", { name: "45 days" });
  expect(screen.getAllByRole("option").map((o) => o.textContent)).toEqual(["45 days", "7 days", "30 days"]);
  fireEvent.change(screen.getByLabelText("Public key"), { target: { value: "ssh-ed25519 AAAA" } });
  fireEvent.click(screen.getByRole("button", { name: "Add key" }));
  await vi.waitFor(() => expect(screen.queryByRole("button", { name: "Add key" })).toBeNull());
  const added = sent.mock.calls.find(([, request]) => request?.method === "POST")!;
  expect((JSON.parse(added[1]!.body!) as { lifetime: number }).lifetime).toBe(0); // the longest
});

it("removes a key once that is confirmed", async () => {
  const sent = show([laptop]);
  fireEvent.click(await screen.findByRole("button", { name: "Remove SSH key laptop" }));
  expect(sent("DELETE")).toHaveLength(0);
  fireEvent.click(screen.getByRole("button", { name: "Remove" }));
  await vi.waitFor(() => expect(sent("DELETE").map(([path]) => path)).toEqual(["/api/v2/users/me/ssh-keys/1"]));
});

it("says at which regions keys sign in, and changes that", async () => {
  const eu = {
    region: "eu",
    display_name: "Europe",
    address: "eu.example.com:2222",
    host_key: "k",
    fingerprint: "SHA256:eu",
  };
  const gateway = {
    enabled: false,
    address: "",
    max_key_lifetime: 0,
    regions: [eu, { ...eu, region: "us", display_name: "America" }],
  };
  const sent = vi.fn((path: string, _request?: { method?: string; body?: string }) =>
    Promise.resolve(
      new Response(JSON.stringify(path.endsWith("ssh-gateway") ? gateway : [{ ...laptop, regions: ["us", "away"] }])),
    ),
  );
  vi.stubGlobal("fetch", sent);
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <SSHKeys />
    </QueryClientProvider>,
  );
  await screen.findByText("us, away");
  const command = screen.getByLabelText<HTMLInputElement>("SSH command at Europe");
  expect(command.value).toBe("ssh -p 2222 WORKSPACE@eu.example.com");
  fireEvent.click(screen.getByRole("button", { name: "Regions of SSH key laptop" }));
  fireEvent.click(screen.getByRole("checkbox", { name: "Europe" }));
  fireEvent.click(screen.getByRole("checkbox", { name: "America" }));
  fireEvent.click(screen.getByRole("button", { name: "Save" }));
  await vi.waitFor(() => expect(screen.queryByRole("button", { name: "Save" })).toBeNull());
  const [path, request] = sent.mock.calls.find(([, r]) => r?.method === "PATCH")!;
  expect(path).toContain("users/me/ssh-keys/1");
  expect(JSON.parse(request!.body!)).toEqual({ regions: ["away", "eu"] });
});
