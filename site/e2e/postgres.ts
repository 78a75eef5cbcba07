// PostgreSQL as an operator runs it, outside of the server: for tests that kill it, promote its standby or set its
// clock.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { until } from "./server";

// Where PostgreSQL's programs are: on Debian not in PATH.
function programs(): string {
  const versions = "/usr/lib/postgresql";
  const newest = existsSync(versions) ? readdirSync(versions).toSorted((a, b) => Number(b) - Number(a)) : [];
  const dirs = [...newest.map((v) => join(versions, v, "bin")), ...(process.env["PATH"] ?? "").split(":")];
  const dir = dirs.find((d) => existsSync(join(d, "initdb")));
  if (!dir) throw new Error("there is no PostgreSQL: run scripts/test-prerequisites");
  return dir;
}

// PostgreSQL does not run as root.
function account(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const id = (what: string) => Number(execFileSync("id", [what, "postgres"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

export class Postgres {
  private process: ChildProcess | undefined;
  private readonly bin = programs();
  private readonly as = account();
  private readonly settings: string[];
  readonly dir: string; // of the data and of the socket

  private constructor(settings: string[] = []) {
    const parent = mkdtempSync(join(tmpdir(), "pg-")); // a short path, for the sockets
    chmodSync(parent, 0o755);
    this.dir = join(parent, "data");
    this.settings = settings;
  }

  // make starts an empty PostgreSQL.
  static async make(): Promise<Postgres> {
    const made = new Postgres();
    made.initialize();
    await made.start();
    return made;
  }

  // pair starts an empty PostgreSQL, and a standby that follows it.
  static async pair(): Promise<[primary: Postgres, standby: Postgres]> {
    const primary = new Postgres();
    const follow = `primary_conninfo=host=${primary.dir} user=coder`;
    const standby = new Postgres([follow, "wal_retrieve_retry_interval=100ms"]);
    primary.initialize();
    // A copy of a cluster that never ran is a backup of it.
    execFileSync("cp", ["-a", primary.dir, standby.dir]);
    writeFileSync(join(standby.dir, "standby.signal"), "");
    await primary.start();
    await standby.start();
    return [primary, standby];
  }

  // urlOf leads to the primary among some.
  static urlOf(...all: Postgres[]): string {
    const query = new URLSearchParams({
      host: all.map((p) => p.dir).join(","),
      port: all.map(() => "5432").join(","),
      target_session_attrs: "read-write",
    });
    return `postgres://coder@/postgres?${query}`;
  }

  private initialize() {
    mkdirSync(this.dir, { mode: 0o700 });
    if (this.as.uid !== undefined) chownSync(this.dir, this.as.uid, this.as.gid!);
    const options = ["--username=coder", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
    execFileSync(join(this.bin, "initdb"), ["-D", this.dir, ...options], { ...this.as, stdio: "ignore" });
  }

  async start() {
    const log = openSync(`${this.dir}.log`, "a");
    const settings = ["listen_addresses=", `unix_socket_directories=${this.dir}`, "fsync=off", ...this.settings];
    this.process = spawn(join(this.bin, "postgres"), ["-D", this.dir, ...settings.flatMap((s) => ["-c", s])], {
      ...this.as,
      cwd: this.dir,
      stdio: ["ignore", log, log],
    });
    await until("PostgreSQL answers", () => {
      try {
        return this.sql("SELECT 1");
      } catch {
        return false;
      }
    });
  }

  // sql returns what a statement selects.
  sql(statement: string): string {
    const to = ["-h", this.dir, "-U", "coder", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-XAtqc", statement];
    return execFileSync(join(this.bin, "psql"), to, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
  }

  // kill ends PostgreSQL as a crash of its machine does.
  async kill() {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
    // Its own processes end when they notice: until then it cannot start again.
    await until("all of PostgreSQL has ended", () => !this.isLeft());
  }

  private isLeft(): boolean {
    return readdirSync("/proc").some((pid) => {
      try {
        return readlinkSync(`/proc/${pid}/cwd`) === this.dir;
      } catch {
        return false; // no process, another user's, or one that has ended
      }
    });
  }

  async promote() {
    this.sql("SELECT pg_promote(false)");
    await until("the standby is promoted", () => this.sql("SELECT pg_is_in_recovery()") === "f");
  }

  async cleanup() {
    await this.kill();
    rmSync(dirname(this.dir), { recursive: true, force: true });
  }
}
