// A load balancer as users have in front of several servers.
import { connect, createServer, type Server as Listener, type Socket } from "node:net";
import { freePort } from "./server";

const answer = "<html><h1>502 Bad Gateway</h1></html>";

// Balancer leads connections to the first of its servers that accepts them. Without one it answers 502, as nginx does.
export class Balancer {
  private readonly listener: Listener;
  private readonly open = new Set<Socket>();
  private ports: number[];
  readonly url: string;

  private constructor(port: number, ports: number[]) {
    this.url = `http://127.0.0.1:${port}`;
    this.ports = ports;
    this.listener = createServer((socket) => {
      this.open.add(socket);
      socket.once("close", () => this.open.delete(socket));
      socket.on("error", () => socket.destroy());
      this.carry(socket, [...this.ports]);
    });
    this.listener.listen(port, "127.0.0.1");
  }

  static async start(ports: number[]): Promise<Balancer> {
    return new Balancer(await freePort(), ports);
  }

  private carry(near: Socket, ports: number[]) {
    const port = ports.shift();
    if (port === undefined) {
      const head = `HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: ${answer.length}`;
      near.once("data", () => near.end(`${head}\r\nConnection: close\r\n\r\n${answer}`));
      return;
    }
    const far = connect(port, "127.0.0.1");
    let connected = false;
    far.once("connect", () => {
      connected = true;
      near.pipe(far).pipe(near);
    });
    far.on("error", () => (connected ? near.destroy() : this.carry(near, ports)));
    far.once("close", () => connected && near.destroy());
    near.once("close", () => far.destroy());
  }

  // lead has the balancer lead to other servers, and ends the connections to those before.
  lead(ports: number[]) {
    this.ports = ports;
    for (const socket of this.open) socket.destroy();
  }

  close() {
    this.lead([]);
    this.listener.close();
  }
}
