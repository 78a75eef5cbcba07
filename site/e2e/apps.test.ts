// What listens in a workspace, opened from the dashboard: apps by host and by path, ports, commands, and who may.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, open, withBrowser } from "./browser";
import { api, freePort, run } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");
let port: number;
let bob: string;

// The program in the workspace: a page that says what it was sent and what it can read, and an echo by websocket.
const program = (at: number) => `
const { createServer } = require("node:http");
const { createHash } = require("node:crypto");
const page = (cookie) => \`<!doctype html><title>app</title><h1>An app</h1>
<p id="sent">\${cookie}</p><p id="read"></p><p id="socket"></p><script>
  const read = document.getElementById("read");
  try { read.textContent = "read:" + document.cookie; } catch (e) { read.textContent = "read:refused"; }
  const ws = new WebSocket(new URL("echo", location.href).href.replace(/^http/, "ws"));
  ws.onopen = () => ws.send("ping");
  ws.onmessage = (e) => { document.getElementById("socket").textContent = "socket:" + e.data; };
</script>\`;
const server = createServer((req, res) => {
  res.setHeader("Content-Type", "text/html");
  res.setHeader("Set-Cookie", "mine=yes; Path=/");
  res.end(page("sent:" + (req.headers.cookie ?? "")));
});
server.on("upgrade", (req, socket) => {
  const challenge = req.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  const key = createHash("sha1").update(challenge).digest("base64");
  socket.write(["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
    "Sec-WebSocket-Accept: " + key, "", ""].join("\\r\\n"));
  socket.on("data", (d) => {
    if ((d[0] & 15) === 8) return socket.end();
    const n = d[1] & 127, mask = d.subarray(2, 6), body = d.subarray(6, 6 + n).map((b, i) => b ^ mask[i % 4]);
    socket.write(Buffer.concat([Buffer.from([0x81, n]), body]));
  });
  socket.on("error", () => socket.destroy());
});
server.listen(${at}, "127.0.0.1");
`;

const app = (slug: string, more: string) => `
resource "coder_app" "${slug}" {
  agent_id     = coder_agent.main.id
  slug         = "${slug}"
  display_name = "${slug} <b>app</b>"
  ${more}
}
`;

beforeAll(async () => {
  port = await freePort();
  const dir = join(place.dir, "apps");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "app.cjs"), program(port));
  const base = readFileSync(join(place.dir, "process", "main.tf"), "utf8");
  const url = `url = "http://localhost:${port}"`;
  // The workspace has a file system of its own, so the program comes with its script.
  const serve = `resource "coder_script" "serve" {
  agent_id     = coder_agent.main.id
  display_name = "Serve"
  run_on_start = true
  script       = <<-SCRIPT
cat >app.cjs <<'PROGRAM'
\${file("\${path.module}/app.cjs")}
PROGRAM
nohup ${process.execPath} app.cjs >/dev/null 2>&1 &
SCRIPT
}
`;
  writeFileSync(
    join(dir, "main.tf"),
    base + app("hostile", 'url = "javascript:alert(document.domain)"\n  external = true'),
  );
  await expect(run(place, ["templates", "push", "apps", "-d", dir, "-y"])).rejects.toThrow(
    "cannot begin with javascript:",
  );
  writeFileSync(
    join(dir, "main.tf"),
    base +
      app("web", `${url}\n  subdomain = true\n  icon = "https://example.com/tracker.png"`) +
      app("second", `${url}\n  subdomain = true`) +
      app("bypath", url) +
      app("team", `${url}\n  subdomain = true\n  share = "authenticated"`) +
      app("public", `${url}\n  subdomain = true\n  share = "public"`) +
      app("elsewhere", 'url = "https://example.com/docs"\n  external = true') +
      app("command", 'command = "echo from-the-$((20+3))-command; exec sh"') +
      serve,
  );
  await run(place, ["templates", "push", "apps", "-d", dir, "-y"]);
  await run(place, ["create", "apps", "-t", "apps", "-y"]);
  await api(place, token, "POST", "users", { username: "mallory", email: "mallory@example.com", password, name: "" });
  const answer = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email: "mallory@example.com", password }),
  });
  bob = ((await answer.json()) as { session_token: string }).session_token;
});

const host = (slug: string) => `http://${slug}--main--apps--ada.apps.localhost:${place.port}/`;

it("opens apps by host, with websockets, and gives them no session", async () => {
  const { page, context } = await open(place, token);
  await page.goto("/@ada/apps");
  const link = page.getByRole("link", { name: "web <b>app</b>" });
  await link.waitFor();
  await page.getByText("connected", { exact: true }).waitFor();
  await axe(page, "a workspace with apps");
  const opened = context.waitForEvent("page");
  await link.click();
  const web = await opened;
  await web.getByRole("heading", { name: "An app" }).waitFor();
  expect(web.url()).toBe(host("web"));
  await web.getByText("socket:ping").waitFor();
  // Neither is the dashboard's session sent to the app, nor can its page read anything but its own cookie.
  expect(await web.locator("#sent").innerText()).not.toContain("coder_session");
  expect(await web.locator("#read").innerText()).toBe("read:mine=yes");
  const second = await context.newPage();
  await second.goto(host("second"));
  await second.getByText("socket:ping").waitFor();
  expect(await second.locator("#sent").innerText()).toBe("sent:");
});

it("opens apps by path or sends them to their host, ports by number, and commands in a terminal", async () => {
  const { page, context } = await open(place, token);
  await page.goto("/@ada/apps");
  const follow = async (name: string | RegExp) => {
    const opened = context.waitForEvent("page");
    await page.getByRole("link", { name }).click();
    return opened;
  };
  const byPath = await follow(/^bypath/);
  await byPath.getByText("socket:ping").waitFor();
  expect(await byPath.locator("#sent").innerText()).not.toContain("coder_session");
  const command = await follow(/^command/);
  await command.waitForFunction(() =>
    [...document.querySelectorAll(".xterm-rows > div")].some((r) =>
      (r as HTMLElement).innerText.replaceAll(" ", " ").includes("from-the-23-command"),
    ),
  );
  await page.getByRole("tab", { name: "Ports" }).click();
  const listening = page
    .getByRole("tabpanel")
    .getByRole("listitem")
    .filter({ hasText: String(port) });
  await listening.waitFor();
  const opened = context.waitForEvent("page");
  await listening.getByRole("link", { name: "Open" }).click();
  await (await opened).getByText("socket:ping").waitFor();

  expect(await page.getByRole("link", { name: /^elsewhere/ }).getAttribute("href")).toBe("https://example.com/docs");
  expect(await page.locator('a[href^="javascript:"]').count()).toBe(0);
});

it("opens shared apps for others, and only those", async () => {
  const { page } = await open(place, bob);
  await page.goto(host("team"));
  await page.getByText("socket:ping").waitFor();
  await page.goto(host("web"));
  await page.getByRole("heading").waitFor();
  expect(await page.getByRole("heading").innerText()).not.toBe("An app");

  const stranger = await open(place);
  await stranger.page.goto(host("public"));
  await stranger.page.getByText("socket:ping").waitFor();
  await stranger.page.goto(host("team"));
  await stranger.page.waitForURL("**/login?redirect=*");
  await stranger.page.getByLabel("Email").fill("mallory@example.com");
  await stranger.page.getByLabel("Password").fill(password);
  await stranger.page.getByRole("button", { name: "Sign in" }).click();
  await stranger.page.getByRole("heading", { name: "An app" }).waitFor();
  expect(stranger.page.url()).toBe(host("team"));
});
