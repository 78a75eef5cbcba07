import { useQuery } from "@tanstack/react-query";
import { useCallback } from "react";
import { useSearch } from "wouter";
import { get } from "~/api/client";
import { Front } from "~/components/shell/front";
import { DeviceCode } from "~/components/ui/device-code";
import { ErrorNote } from "~/components/ui/error-note";
import { Loading } from "~/components/ui/loading";
import { useDeviceCode } from "~/lib/device";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

// Device shows the code that the user enters at GitHub, and waits until that has happened.
export default function Device() {
  useTitle("Sign in with GitHub");
  const state = new URLSearchParams(useSearch()).get("state") ?? "";
  const device = useQuery({
    queryKey: ["device"],
    queryFn: ({ signal }) => get("users/oauth2/github/device", { signal }),
    staleTime: Infinity,
    retry: false,
  });
  const ask = useCallback(
    async (code: string) => {
      const done = await get("users/oauth2/github/callback", { query: { code, state } });
      location.assign(done.redirect_url);
    },
    [state],
  );
  const failed = useDeviceCode(device.data, ask) ?? device.error;
  return (
    <Front title="Sign in with GitHub">
      <div className="flex flex-col gap-4">
        {failed ? (
          <ErrorNote error={failed} />
        ) : device.data ? (
          <DeviceCode of={device.data} />
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
