// A server of the built program, with its own PostgreSQL, provisioners and folders, for tests that look at it through a
// browser.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { createServer, type ListenOptions, type Server as Listener } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const coder = join(root, "build", "coder");

// until polls for what other processes do on their own time.
export async function until<T>(
  what: string,
  check: () => Promise<T | undefined | false> | T | undefined | false,
  ms = 60_000,
): Promise<T> {
  for (const deadline = Date.now() + ms; ;) {
    const got = await check();
    if (got) return got;
    if (Date.now() > deadline) throw new Error(`still not after ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// lockAddress is the address by which a port is reserved, of the longest form: see internal/testport.
export const lockAddress = (port: number) => `\0codermesh-test-port-${port}`.padEnd(108, "-");

// freePort returns a port for a program that starts later, and reserves it among tests that run at the same time,
// until this process ends. It is below those that the system gives to connections, one of which could have it
// meanwhile: see internal/testport.
export async function freePort(): Promise<number> {
  const listen = (at: ListenOptions) =>
    new Promise<Listener | undefined>((resolve) => {
      const l = createServer();
      l.once("error", () => resolve(undefined));
      l.listen(at, () => resolve(l.unref()));
    });
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    if (!(await listen({ path: lockAddress(port) }))) continue;
    const free = await listen({ port });
    if (!free) continue;
    await new Promise((resolve) => free.close(resolve));
    return port;
  }
}

export interface Place {
  dir: string;
  port: number;
  url: string;
}

export class Server {
  private process: ChildProcess | undefined;
  readonly place: Place;
  static readonly program = coder;
  program = Server.program; // what runs from the next start on
  extra: NodeJS.ProcessEnv = {}; // more environment for the server itself

  constructor(place: Place) {
    this.place = place;
  }

  static async make(): Promise<Server> {
    const port = await freePort();
    return new Server({ dir: mkdtempSync(join(tmpdir(), "site-e2e-")), port, url: `http://127.0.0.1:${port}` });
  }

  env(user = "admin"): NodeJS.ProcessEnv {
    const { dir, port, url } = this.place;
    return {
      PATH: `${process.env["PATH"]}:${join(root, "build", "tools")}`,
      HOME: join(dir, `home-${user}`),
      CODER_CONFIG_DIR: join(dir, `config-${user}`),
      CODER_CACHE_DIRECTORY: join(dir, "cache"),
      CODER_HTTP_ADDRESS: `127.0.0.1:${port}`,
      CODER_ACCESS_URL: url,
      USER: "root",
      SHELL: "/bin/bash",
      LANG: "C.UTF-8",
      TERM: "xterm-256color",
      CODER_SSH_ADDRESS: "127.0.0.1:0",
      CODER_WEBHOOK_ALLOWED_NETWORKS: "127.0.0.0/8",
      // Browsers take every name below localhost for this machine.
      CODER_WILDCARD_ACCESS_URL: `*.apps.localhost:${port}`,
    };
  }

  async start() {
    const { dir, url } = this.place;
    mkdirSync(join(dir, "home-admin"), { recursive: true });
    const log = openSync(join(dir, "server.log"), "a");
    this.process = spawn(this.program, ["server"], {
      cwd: dir,
      env: { ...this.env(), ...this.extra },
      stdio: ["ignore", log, log],
    });
    await until("the server is healthy", async () => {
      if (this.process?.exitCode != null) throw new Error(`the server ended:\n${this.log()}`);
      return fetch(`${url}/healthz`).then(
        (r) => r.ok,
        () => false,
      );
    });
  }

  log = () => readFileSync(join(this.place.dir, "server.log"), "utf8").slice(-6000);

  get running() {
    const child = this.process;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  async stop(signal: NodeJS.Signals = "SIGTERM") {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
    this.process = undefined;
  }

  // cleanup ends the server and what it has left: agents outlive their server by design.
  async cleanup() {
    await this.stop();
    const { dir, port } = this.place;
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)) {
      try {
        const named = readFileSync(`/proc/${pid}/environ`, "utf8") + readFileSync(`/proc/${pid}/cmdline`, "utf8");
        if (!named.includes(`${dir}/`) && !named.includes(`127.0.0.1:${port}`)) continue;
        const program = dirname(readlinkSync(`/proc/${pid}/exe`));
        process.kill(Number(pid), "SIGKILL");
        if (basename(program).startsWith("coder.")) rmSync(program, { recursive: true, force: true });
      } catch {
        // It has ended, or belongs to another user.
      }
    }
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  }
}

// Proxy is a region proxy of a server. Its host differs from the server's.
export class Proxy {
  private readonly process: ChildProcess;

  private constructor(process: ChildProcess) {
    this.process = process;
  }

  static async start(place: Place, name: string): Promise<Proxy> {
    const token = (await run(place, ["wsproxy", "create", name])).trim();
    const port = await freePort();
    const url = `http://localhost:${port}`;
    const log = openSync(join(place.dir, `proxy-${name}.log`), "a");
    const at = ["--primary-access-url", place.url, "--access-url", url, "--http-address", `127.0.0.1:${port}`];
    const child = spawn(coder, ["wsproxy", "server", ...at, "--stun-address", "off"], {
      cwd: place.dir,
      // Without the server's own addresses.
      env: {
        ...new Server(place).env(),
        CODER_PROXY_SESSION_TOKEN: token,
        CODER_WILDCARD_ACCESS_URL: "",
        CODER_HTTP_ADDRESS: "",
        CODER_ACCESS_URL: "",
      },
      stdio: ["ignore", log, log],
    });
    await until(`region ${name} is ok`, async () => / ok/.test(await run(place, ["wsproxy", "ls"])));
    return new Proxy(child);
  }

  get running() {
    const child = this.process;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  async stop(signal: NodeJS.Signals = "SIGTERM") {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill(signal);
    await ended;
  }
}

// Provisioner is one `coder provisionerd start`, with folders of its own in dir.
export class Provisioner {
  private readonly process: ChildProcess;
  private readonly file: string; // its log

  private constructor(process: ChildProcess, file: string) {
    this.process = process;
    this.file = file;
  }

  // start returns when the server has welcomed it. psk is the server's CODER_PROVISIONER_DAEMON_PSK.
  static async start(place: Place, name: string, psk: string, dir: string, args: string[] = []): Promise<Provisioner> {
    const log = join(place.dir, `provisioner-${name}.log`);
    const file = openSync(log, "a");
    const all = ["provisionerd", "start", "--name", name, "--provisioner-isolation", "none", ...args];
    const child = spawn(coder, all, {
      cwd: place.dir,
      env: {
        ...new Server(place).env(),
        HOME: join(dir, "home"),
        CODER_CONFIG_DIR: join(dir, "config"),
        CODER_CACHE_DIRECTORY: join(dir, "cache"),
        CODER_URL: place.url,
        CODER_PROVISIONER_DAEMON_PSK: psk,
      },
      stdio: ["ignore", file, file],
    });
    await until("the provisioner has started", () => {
      const text = readFileSync(log, "utf8");
      if (child.exitCode !== null) throw new Error(`the provisioner ended:\n${text}`);
      return text.includes("provisioner started");
    });
    return new Provisioner(child, log);
  }

  // said returns how often its log has a text.
  said = (text: string) => readFileSync(this.file, "utf8").split(text).length - 1;

  async stop(signal: NodeJS.Signals = "SIGTERM") {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill(signal);
    await ended;
  }
}

// run is the command line as a user.
export async function run(place: Place, args: string[], user = "admin"): Promise<string> {
  const { stdout } = await promisify(execFile)(coder, args, {
    cwd: place.dir,
    env: new Server(place).env(user),
    maxBuffer: 64 << 20,
    timeout: 180_000,
  });
  return stdout;
}

// api asks the server as the person whose token it is.
export async function api<T = unknown>(
  place: Place,
  token: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<T> {
  const response = await fetch(`${place.url}/api/v2/${path}`, {
    method,
    headers: { "Coder-Session-Token": token, "Content-Type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return (text ? JSON.parse(text) : undefined) as T;
}
