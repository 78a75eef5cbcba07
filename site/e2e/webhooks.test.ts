// Owners set up webhooks, see what was sent, and replace a secret.
import { createHmac } from "node:crypto";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { admin, axe, fits, open, withBrowser } from "./browser";
import { until } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

let receiver: Server;
const got: { headers: IncomingHttpHeaders; body: string }[] = [];

beforeAll(async () => {
  receiver = createServer((req, res) => {
    let body = "";
    req.on("data", (part: Buffer) => (body += part.toString()));
    req.on("end", () => {
      got.push({ headers: req.headers, body });
      res.end("thanks");
    });
  });
  await new Promise<void>((done) => receiver.listen(0, "127.0.0.1", done));
});

afterAll(() => {
  receiver.closeAllConnections();
  receiver.close();
});

// signature is what a receiver with the secret expects of a message.
const signature = (secret: string, of: (typeof got)[number]) =>
  "v1," +
  createHmac("sha256", Buffer.from(secret.replace("whsec_", ""), "base64"))
    .update(`${of.headers["webhook-id"]}.${of.headers["webhook-timestamp"]}.${of.body}`)
    .digest("base64");

it("adds a webhook, shows its deliveries, replaces its secret and removes it", async () => {
  const { page } = await open(place, token);
  await page.goto("/workspaces");
  await (await admin(page)).getByRole("menuitem", { name: "Webhooks" }).click();
  await page.getByRole("button", { name: "Add webhook" }).click();
  const form = page.getByRole("dialog", { name: "Add webhook" });
  await form.getByLabel("Name").fill("ci");
  await form.getByLabel("URL").fill(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hidden`);
  await form.getByLabel("Events").selectOption({ label: "Templates" });
  await form.getByRole("button", { name: "Add webhook" }).click();
  const shown = page.getByRole("dialog", { name: "Signing secret of ci" });
  const first = (await shown.locator("code").textContent())!;
  expect(first).toMatch(/^whsec_/);
  await axe(page, "a signing secret");
  await shown.getByRole("button", { name: "Done" }).click();

  const test = async () => {
    const before = got.length;
    await page.getByRole("button", { name: "Send a test" }).click();
    await until("the receiver has the test", () => Promise.resolve(got.length > before));
    return got.at(-1)!;
  };
  await page.getByRole("button", { name: "Deliveries to ci" }).click();
  let message = await test();
  expect(message.headers["webhook-signature"]).toBe(signature(first, message));
  await page.getByRole("region", { name: "Deliveries to ci" }).getByText("200 · thanks").waitFor();
  expect(await page.getByText("/hidden").count()).toBe(0);

  await page.getByRole("button", { name: "Replace the secret of ci" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Replace" }).click();
  const second = (await page.getByRole("dialog", { name: "Signing secret of ci" }).locator("code").textContent())!;
  expect(second).not.toBe(first);
  await page.getByRole("button", { name: "Done" }).click();
  message = await test();
  expect(message.headers["webhook-signature"]).toBe(`${signature(second, message)} ${signature(first, message)}`);

  await axe(page, "webhooks");
  const narrow = await open(place, token, { width: 390 });
  await narrow.page.goto("/deployment/webhooks");
  await narrow.page.getByText("ci", { exact: true }).first().waitFor();
  await fits(narrow.page, "webhooks on a phone");

  await page.getByRole("button", { name: "Remove webhook ci" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("No webhooks").waitFor();
});
