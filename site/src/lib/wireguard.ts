// Keys and configurations of devices with a WireGuard app, as internal/wgquick makes them.
import type { UserDevice, WireGuardGateway } from "~/api/types";

// Pair is a key pair of Curve25519. Its texts are as `wg genkey` and `wg pubkey` print them.
export interface Pair {
  privateKey: string;
  publicKey: string;
}

// newPair makes a key pair in this browser.
export async function newPair(): Promise<Pair> {
  const { secret, open } = (await browsersPair()) ?? (await scriptsPair());
  // Clamped (RFC 7748, section 5), as `wg genkey` does: the public key is the same.
  secret[0]! &= 248;
  secret[31] = (secret[31]! & 127) | 64;
  return { privateKey: encode(secret), publicKey: encode(open) };
}

interface Bytes {
  secret: Uint8Array;
  open: Uint8Array;
}

// browsersPair is made by the browser. Pages without TLS have no crypto.subtle, and older browsers have no X25519.
async function browsersPair(): Promise<Bytes | undefined> {
  try {
    const { subtle } = crypto;
    const pair = (await subtle.generateKey({ name: "X25519" }, true, ["deriveBits"])) as CryptoKeyPair;
    const { d = "", x = "" } = await subtle.exportKey("jwk", pair.privateKey);
    return { secret: decode(d), open: decode(x) };
  } catch {
    return undefined;
  }
}

async function scriptsPair(): Promise<Bytes> {
  const { x25519 } = await import("@noble/curves/ed25519.js");
  const { secretKey, publicKey } = x25519.keygen();
  return { secret: secretKey, open: publicKey };
}

const encode = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes));

const decode = (base64url: string) =>
  Uint8Array.from(atob(base64url.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

// isKey reports whether a text is one key and nothing else: 32 bytes in base64.
export const isKey = (text: string) => /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/.test(text);

// wgQuick returns a device's configuration, a file for wg-quick. It contains the private key, unless the user has that.
export const wgQuick = (gateway: WireGuardGateway, device: UserDevice, privateKey: string | undefined) =>
  `[Interface]
${privateKey ? `PrivateKey = ${privateKey}` : "# PrivateKey = the key that belongs to the registered public key"}
Address = ${device.address}/128
DNS = ${gateway.dns}
MTU = ${gateway.mtu}

[Peer]
PublicKey = ${gateway.public_key}
AllowedIPs = ${gateway.prefix}
Endpoint = ${gateway.address}
PersistentKeepalive = 25
`;

// fileName is where a device's configuration is kept. The apps name the connection after the file, and take at most 15
// characters of these.
export function fileName(device: string): string {
  const name = device.replaceAll(/[^A-Za-z0-9_=+.-]+/g, "-").replace(/^[-.]+/, "");
  return `${name.slice(0, 15).replace(/[-.]+$/, "") || "coder"}.conf`;
}
