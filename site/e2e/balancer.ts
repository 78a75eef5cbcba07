// A load balancer as users have in front of several servers.
import { connect, createServer, type Server as Listener, type Socket } from "node:net";
import { freePort } from "./server";

const answer = "<html><h1>502 Bad Gateway</h1></html>";
const head = `HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: ${answer.length}`;
const badGateway = `${head}\r\nConnection: close\r\n\r\n${answer}`;

// Loss is a request whose answer the browser does not get.
interface Loss {
  request: RegExp; // of its beginning: POST /api/...
  instead: "cut" | "502"; // what the browser gets
  meanwhile: () => Promise<void>;
  done: () => void;
  failed: (err: unknown) => void;
}

async function lose(near: Socket, { instead, meanwhile, done, failed }: Loss) {
  try {
    await meanwhile();
    if (instead === "502") near.end(badGateway);
    else near.destroy();
    done();
  } catch (err) {
    failed(err);
  }
}

function stop([near, far]: [Socket, Socket]) {
  near.unpipe(far).pause();
  far.unpipe(near).pause();
}

// Balancer leads connections to the first of its servers that accepts them. Without one it answers 502, as nginx does.
export class Balancer {
  private readonly listener: Listener;
  private readonly open = new Set<Socket>();
  private readonly pairs = new Set<[near: Socket, far: Socket]>();
  private held: (() => void)[] | undefined; // connections that came while nothing passes
  private ports: number[];
  private loss: Loss | undefined;
  readonly url: string;

  private constructor(port: number, ports: number[]) {
    this.url = `http://127.0.0.1:${port}`;
    this.ports = ports;
    this.listener = createServer((socket) => {
      this.open.add(socket);
      socket.once("close", () => this.open.delete(socket));
      socket.on("error", () => socket.destroy());
      if (this.held) this.held.push(() => this.carry(socket, [...this.ports]));
      else this.carry(socket, [...this.ports]);
    });
    this.listener.listen(port, "127.0.0.1");
  }

  static async start(ports: number[]): Promise<Balancer> {
    return new Balancer(await freePort(), ports);
  }

  private carry(near: Socket, ports: number[]) {
    const port = ports.shift();
    if (port === undefined) {
      near.once("data", () => near.end(badGateway));
      return;
    }
    const far = connect(port, "127.0.0.1");
    let connected = false;
    let lost = false; // the answer: near is not far's any more
    far.once("connect", () => {
      connected = true;
      near.on("data", (sent: Buffer) => {
        const loss = this.loss; // before the request is forwarded
        if (lost || !loss?.request.test(sent.toString("latin1"))) return;
        lost = true;
        this.loss = undefined;
        far.unpipe(near);
        far.once("data", () => void lose(near, loss));
        far.resume();
      });
      const pair: [Socket, Socket] = [near, far];
      this.pairs.add(pair);
      near.once("close", () => this.pairs.delete(pair));
      near.pipe(far).pipe(near);
      if (this.held) stop(pair);
    });
    far.on("error", () => (connected ? lost || near.destroy() : this.carry(near, ports)));
    far.once("close", () => connected && !lost && near.destroy());
    near.once("close", () => far.destroy());
  }

  // loses withholds the answer to the next such request from the browser: once the server has answered, it does what is
  // to happen meanwhile, such as the server's end. It returns when the browser has got what it gets instead.
  loses(request: RegExp, instead: Loss["instead"], meanwhile: Loss["meanwhile"]): Promise<void> {
    return new Promise((done, failed) => (this.loss = { request, instead, meanwhile, done, failed }));
  }

  // lead has the balancer lead to other servers, and ends the connections to those before.
  lead(ports: number[]) {
    this.ports = ports;
    for (const socket of this.open) socket.destroy();
  }

  // freeze lets nothing pass, and closes nothing, until thaw.
  freeze() {
    this.held = [];
    for (const pair of this.pairs) stop(pair);
  }

  thaw() {
    const held = this.held ?? [];
    this.held = undefined;
    for (const [near, far] of this.pairs) near.pipe(far).pipe(near);
    for (const carry of held) carry();
  }

  close() {
    this.lead([]);
    this.listener.close();
  }
}
