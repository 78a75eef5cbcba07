// @vitest-environment node
import { createPrivateKey, createPublicKey } from "node:crypto";
import { afterEach, expect, it, vi } from "vitest";
import type { UserDevice, WireGuardGateway } from "~/api/types";
import { fileName, isKey, newPair, wgQuick } from "./wireguard";

afterEach(() => vi.unstubAllGlobals());

// publicOf is the public key of a private one, by OpenSSL.
function publicOf(privateKey: string): string {
  const der = Buffer.concat([
    Buffer.from("302e020100300506032b656e04220420", "hex"),
    Buffer.from(privateKey, "base64"),
  ]);
  const { x } = createPublicKey(createPrivateKey({ key: der, format: "der", type: "pkcs8" })).export({ format: "jwk" });
  return Buffer.from(x!, "base64url").toString("base64");
}

const real = globalThis.crypto;
const getRandomValues = real.getRandomValues.bind(real);

it.each([
  ["the browser", () => undefined],
  ["a script, without crypto.subtle", () => vi.stubGlobal("crypto", { getRandomValues })],
  [
    "a script, without X25519",
    () =>
      vi.stubGlobal("crypto", {
        getRandomValues,
        subtle: { generateKey: () => Promise.reject(new DOMException("no X25519", "NotSupportedError")) },
      }),
  ],
])("makes pairs that belong together: %s", async (_, prepare) => {
  prepare();
  const generate = globalThis.crypto.subtle && vi.spyOn(globalThis.crypto.subtle, "generateKey");
  const pairs = await Promise.all([newPair(), newPair()]);
  for (const { privateKey, publicKey } of pairs) {
    expect(isKey(privateKey) && isKey(publicKey)).toBe(true);
    expect(publicOf(privateKey)).toBe(publicKey);
    const raw = Buffer.from(privateKey, "base64");
    expect([raw[0]! & 7, raw[31]! & 192]).toEqual([0, 64]); // clamped
  }
  expect(pairs[0]!.privateKey).not.toBe(pairs[1]!.privateKey);
  if (generate) expect(generate).toHaveBeenCalledTimes(2);
});

const key = `${"A".repeat(42)}w=`;

it.each([
  [key, true],
  ["", false],
  [key.slice(1), false],
  [`${key}\n`, false],
  [`PrivateKey = ${key}`, false],
  [`${"A".repeat(42)}x=`, false], // bits that do not count
  [`${"_".repeat(42)}w=`, false],
])("knows what a key looks like: %j", (text, want) => expect(isKey(text)).toBe(want));

// The same text as TestConfig of internal/wgquick.
it("writes the configuration, with and without the private key", () => {
  const gateway = {
    dns: "fd3b:8e1f:47c2::53",
    mtu: 1280,
    public_key: "cHVibGlj",
    prefix: "fd3b:8e1f:47c2::/48",
    address: "wg.example.com:51820",
  } as WireGuardGateway;
  const device = { address: "fd3b:8e1f:47c2::1" } as UserDevice;
  const text = wgQuick(gateway, device, "cHJpdmF0ZQ==");
  expect(text).toBe(`[Interface]
PrivateKey = cHJpdmF0ZQ==
Address = fd3b:8e1f:47c2::1/128
DNS = fd3b:8e1f:47c2::53
MTU = 1280

[Peer]
PublicKey = cHVibGlj
AllowedIPs = fd3b:8e1f:47c2::/48
Endpoint = wg.example.com:51820
PersistentKeepalive = 25
`);
  expect(wgQuick(gateway, device, undefined)).toBe(
    text.replace("PrivateKey = cHJpdmF0ZQ==", "# PrivateKey = the key that belongs to the registered public key"),
  );
});

it.each([
  ["phone", "phone.conf"],
  ["Ada's phone", "Ada-s-phone.conf"],
  ["a-very-long-name-of-a-device", "a-very-long-nam.conf"],
  ["../../etc/passwd", "etc-passwd.conf"],
  ["手机", "coder.conf"],
])("names the file of %s", (device, want) => expect(fileName(device)).toBe(want));
