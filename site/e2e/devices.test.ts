// Devices with a WireGuard app on the account page, of a server with a gateway and of one without.
import { createPrivateKey, createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import jsQR from "jsqr";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import type { UserDevice, WireGuardGateway } from "../src/api/types";
import { axe, fits, open, withBrowser } from "./browser";
import { api, freePort, Server } from "./server";
import { signUp } from "./setup";

withBrowser();

let server: Server;
let token: string;
beforeAll(async () => {
  server = await Server.make();
  server.extra = { CODER_WIREGUARD_ADDRESS: `:${await freePort()}` };
  await server.start();
  token = await signUp(server);
});
afterAll(() => server.cleanup());

const section = (page: Page) =>
  page.locator("section").filter({ has: page.getByRole("heading", { name: "Devices", exact: true }) });

// scan reads a QR code from the screen, as a phone does.
async function scan(page: Page, code: Locator): Promise<string | undefined> {
  const png = (await code.screenshot()).toString("base64");
  // One character for each pixel, as bright as it: millions of numbers would take seconds on their way.
  const { shades, width, height } = await page.evaluate(async (data) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d")!;
    context.drawImage(image, 0, 0);
    const drawn = context.getImageData(0, 0, image.width, image.height);
    let shades = "";
    for (let i = 0; i < drawn.data.length; i += 4) shades += String.fromCharCode(drawn.data[i]!);
    return { shades, width: drawn.width, height: drawn.height };
  }, png);
  const pixels = new Uint8ClampedArray(4 * width * height);
  for (let i = 0; i < shades.length; i++) pixels.fill(shades.charCodeAt(i), 4 * i, 4 * i + 4);
  return jsQR(pixels, width, height)?.data;
}

// publicOf is the public key of a private one, by OpenSSL.
function publicOf(privateKey: string): string {
  const head = Buffer.from("302e020100300506032b656e04220420", "hex"); // X25519 as PKCS #8
  const key = Buffer.concat([head, Buffer.from(privateKey, "base64")]);
  const { x } = createPublicKey(createPrivateKey({ key, format: "der", type: "pkcs8" })).export({ format: "jwk" });
  return Buffer.from(x!, "base64url").toString("base64");
}

it("adds a device, whose QR code a phone can read, renames it and removes it", async () => {
  const { place } = server;
  const { page } = await open(place, token);
  const sent: string[] = [];
  page.on("request", (request) => sent.push(`${request.url()} ${request.postData() ?? ""}`));
  await page.goto("/account");
  const devices = section(page);
  await devices.getByText("No devices").waitFor();
  await devices.getByRole("button", { name: "Add device" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("Ada phone");
  await dialog.getByLabel("Lifetime").selectOption("30 days");
  await axe(page, "a new device");
  await dialog.getByRole("button", { name: "Add device" }).click();

  const text = await dialog.getByRole("textbox", { name: "Configuration" }).inputValue();
  const code = dialog.getByRole("img", { name: "QR code of the configuration of Ada phone" });
  expect(await scan(page, code)).toBe(text);
  const privateKey = /^PrivateKey = (.*)$/m.exec(text)![1]!;
  const [stored] = await api<UserDevice[]>(place, token, "GET", "users/me/devices");
  const gateway = await api<WireGuardGateway>(place, token, "GET", "deployment/wireguard-gateway");
  expect(stored).toMatchObject({ name: "Ada phone", public_key: publicOf(privateKey) });
  expect(Math.round((Date.parse(stored!.expires_at) - Date.parse(stored!.created_at)) / 3600_000)).toBe(30 * 24);
  expect(text).toBe(
    `[Interface]\nPrivateKey = ${privateKey}\nAddress = ${stored!.address}/128\nDNS = ${gateway.dns}\n` +
      `MTU = ${gateway.mtu}\n\n[Peer]\nPublicKey = ${gateway.public_key}\nAllowedIPs = ${gateway.prefix}\n` +
      `Endpoint = ${gateway.address}\nPersistentKeepalive = 25\n`,
  );
  const downloading = page.waitForEvent("download");
  await dialog.getByRole("button", { name: "Download Ada-phone.conf" }).click();
  const file = await downloading;
  expect(file.suggestedFilename()).toBe("Ada-phone.conf");
  expect(readFileSync(await file.path(), "utf8")).toBe(text);
  await dialog.getByRole("button", { name: "Copy configuration" }).click();
  await dialog.getByText("Copied").waitFor();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(text);
  await axe(page, "the configuration of a device");
  await page.setViewportSize({ width: 380, height: 800 });
  await fits(page, "the configuration of a device");
  expect(await scan(page, code)).toBe(text);
  await page.setViewportSize({ width: 1280, height: 900 });

  // It is shown once.
  await dialog.getByRole("button", { name: "Done" }).click();
  expect(await page.content()).not.toContain(privateKey);
  expect(sent.filter((s) => s.includes(privateKey) || s.includes(encodeURIComponent(privateKey)))).toEqual([]);
  await devices.getByRole("row").filter({ hasText: stored!.address }).getByText("Never", { exact: true }).waitFor();
  await axe(page, "devices");

  await devices.getByRole("button", { name: "Rename device Ada phone" }).click();
  await dialog.getByLabel("Name").fill("tablet");
  await dialog.getByRole("button", { name: "Rename" }).click();
  await devices.getByRole("cell", { name: "tablet", exact: true }).waitFor();
  expect(await api<UserDevice[]>(place, token, "GET", "users/me/devices")).toMatchObject([
    { id: stored!.id, name: "tablet", public_key: stored!.public_key },
  ]);

  await devices.getByRole("button", { name: "Remove device tablet" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await devices.getByText("No devices").waitFor();
  expect(await api<UserDevice[]>(place, token, "GET", "users/me/devices")).toEqual([]);
});

it("adds a device with a key pair of its own", async () => {
  const { place } = server;
  const { page } = await open(place, token, { dark: true });
  await page.goto("/account");
  await section(page).getByRole("button", { name: "Add device" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("router");
  await dialog.getByLabel("I have a key pair").check();
  const key = publicOf(Buffer.alloc(32, 7).toString("base64"));
  await dialog.getByLabel("Public key", { exact: true }).fill(key);
  await axe(page, "a device with a public key");
  await dialog.getByRole("button", { name: "Add device" }).click();
  expect(await dialog.getByRole("textbox", { name: "Configuration" }).inputValue()).toMatch(
    /^\[Interface\]\n# PrivateKey = /,
  );
  await axe(page, "a configuration without a private key");
  expect(await api<UserDevice[]>(place, token, "GET", "users/me/devices")).toMatchObject([
    { name: "router", public_key: key },
  ]);
});

it("says that a deployment has no gateway", async () => {
  const { page } = await open(inject("place"), inject("token"));
  await page.goto("/account");
  await section(page).getByText("This deployment has no WireGuard gateway", { exact: false }).waitFor();
  expect(await section(page).getByRole("button").count()).toBe(0);
  await axe(page, "devices without a gateway");
});
