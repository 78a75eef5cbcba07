import { useEffect, useState } from "react";
import { ApiError } from "~/api/client";
import type { ExternalAuthDevice } from "~/api/types";

// A service's words for a code that has not been entered yet (RFC 8628).
const waiting = ["authorization_pending", "slow_down"];

// useDeviceCode asks, as often as the service wants, whether the user has entered the code, until ask resolves or fails
// for good. It returns why it failed. ask must not change between renders.
export function useDeviceCode(device: ExternalAuthDevice | undefined, ask: (code: string) => Promise<void>) {
  const [failed, fail] = useState<unknown>(null);
  const { device_code: code, interval } = device ?? {};
  useEffect(() => {
    fail(null);
    if (!code) return;
    let every = Math.max(interval ?? 5, 1) * 1000;
    let ended = false;
    let timer: ReturnType<typeof setTimeout>;
    const again = async () => {
      try {
        await ask(code);
      } catch (err) {
        if (ended) return;
        if (!(err instanceof ApiError) || !waiting.includes(err.detail)) return fail(err);
        if (err.detail === "slow_down") every += 5000;
        timer = setTimeout(() => void again(), every);
      }
    };
    timer = setTimeout(() => void again(), every);
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [code, interval, ask]);
  return failed;
}
