import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useSearch } from "wouter";
import { ApiError, get } from "~/api/client";
import { Front } from "~/components/shell/front";
import { CopyLine } from "~/components/ui/copy";
import { ErrorNote } from "~/components/ui/error-note";
import { Loading } from "~/components/ui/loading";
import { Note } from "~/components/ui/note";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

// GitHub's words for a code that has not been entered yet.
const waiting = ["authorization_pending", "slow_down"];

// Device shows the code that the user enters at GitHub, and waits until that has happened.
export default function Device() {
  useTitle("Sign in with GitHub");
  const state = new URLSearchParams(useSearch()).get("state") ?? "";
  const [failed, fail] = useState<unknown>(null);
  const device = useQuery({
    queryKey: ["device"],
    queryFn: ({ signal }) => get("users/oauth2/github/device", { signal }),
    staleTime: Infinity,
    retry: false,
  });
  const { device_code: code, interval } = device.data ?? {};
  useEffect(() => {
    if (!code) return;
    let every = Math.max(interval ?? 5, 1) * 1000;
    let timer: ReturnType<typeof setTimeout>;
    const ask = async () => {
      try {
        const done = await get("users/oauth2/github/callback", { query: { code, state } });
        location.assign(done.redirect_url);
      } catch (err) {
        if (!(err instanceof ApiError) || !waiting.includes(err.detail)) return fail(err);
        if (err.detail === "slow_down") every += 5000;
        timer = setTimeout(ask, every);
      }
    };
    timer = setTimeout(ask, every);
    return () => clearTimeout(timer);
  }, [code, interval, state]);
  return (
    <Front title="Sign in with GitHub">
      <div className="flex flex-col gap-4">
        {(failed ?? device.error) ? (
          <ErrorNote error={failed ?? device.error} />
        ) : device.data ? (
          <>
            <p className="break-words">
              Enter this code at{" "}
              <a className="underline" href={device.data.verification_uri} target="_blank" rel="noreferrer">
                {device.data.verification_uri}
              </a>
              :
            </p>
            <CopyLine label="code" text={device.data.user_code} />
            <Note tone="warn">Enter only a code that you see here, and only if you started this sign-in yourself.</Note>
          </>
        ) : (
          <Loading what="code" />
        )}
        <a className="text-center text-[13px] text-muted underline" href={paths.login("/")}>
          Back to the sign-in page
        </a>
      </div>
    </Front>
  );
}
