import { useMutation, useQuery } from "@tanstack/react-query";
import { LogIn, Unlink } from "lucide-react";
import { useCallback, useState } from "react";
import { useSearch } from "wouter";
import { ApiError, get, send } from "~/api/client";
import { gone, queries } from "~/api/queries";
import type { ExternalAuthAppInstallation } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Button, buttonClass } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DeviceCode } from "~/components/ui/device-code";
import { Confirm } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Icon } from "~/components/ui/icon";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { PendingPage } from "~/components/ui/pending";
import { useDeviceCode } from "~/lib/device";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { toast } from "~/lib/toasts";

// Why a sign-in failed, by the code in the address. No other text from the address is shown: anyone can craft one.
const reasons: Record<string, string> = {
  denied: "You declined the sign-in. Link the account to try again.",
  state: "The sign-in was started in another browser or session, or it took too long. Try again.",
  exchange: "The service rejected the sign-in. Ask your admin to check the client ID and the callback URL.",
  refused: "The service rejected the token that it had issued. Ask your admin to check the provider's configuration.",
  away: "The server cannot reach the service. Try again later.",
};

// unlink deletes the link with a provider, and reports if the provider did not revoke the access.
async function unlink(id: string) {
  const { token_revocation_error: kept } = await send("DELETE external-auth/{externalauth}", { externalauth: id });
  if (kept) toast({ tone: "bad", text: kept });
}

// What is said of a code that was not entered, by the service's word for it (RFC 8628).
const codeReasons: Record<string, string> = {
  expired_token: "The code has expired.",
  access_denied: "The sign-in was declined there.",
};

// LinkByCode links an account with a code that the user enters at the service.
function LinkByCode({ id, name, onLinked }: { id: string; name: string; onLinked: () => unknown }) {
  const begin = useMutation({ mutationFn: () => get("external-auth/{externalauth}/device", { externalauth: id }) });
  const ask = useCallback(
    async (code: string) => {
      await send("POST external-auth/{externalauth}/device", { externalauth: id, body: { device_code: code } });
      await onLinked();
    },
    [id, onLinked],
  );
  const failed = useDeviceCode(begin.data, ask);
  const reason = failed instanceof ApiError ? codeReasons[failed.detail] : undefined;
  if (begin.data && !failed) return <DeviceCode of={begin.data} />;
  return (
    <>
      {reason ? (
        <Note title={`Your ${name} account is not linked.`}>{reason}</Note>
      ) : (
        (failed ?? begin.error) !== null && <ErrorNote error={failed ?? begin.error} />
      )}
      <Button look="primary" busy={begin.isPending} onClick={() => begin.mutate()}>
        <LogIn /> {begin.data ? "Get another code" : `Link ${name}`}
      </Button>
    </>
  );
}

// Installations lists the accounts whose repositories the provider's app may use.
function Installations({ name, of, at }: { name: string; of: ExternalAuthAppInstallation[]; at: string }) {
  return (
    <Card title="Installations">
      <div className="flex flex-col items-start gap-3">
        {of.length === 0 ? (
          <p>The app is not installed yet: your workspaces have no access to your repositories at {name}.</p>
        ) : (
          <ul className="flex flex-col gap-1 [overflow-wrap:anywhere]">
            {of.map((i) => (
              <li key={i.id}>
                {i.configure_url ? (
                  <a className="underline" href={i.configure_url} target="_blank" rel="noreferrer">
                    {i.account.login}
                  </a>
                ) : (
                  i.account.login
                )}
              </li>
            ))}
          </ul>
        )}
        {at && (
          <a className={buttonClass()} href={at} target="_blank" rel="noreferrer">
            {of.length === 0 ? "Install the app" : "Install for another account"}
          </a>
        )}
      </div>
    </Card>
  );
}

// The page where users link and unlink an account at another service.
export default function ExternalAuthPage({ id }: { id: string }) {
  const failed = reasons[new URLSearchParams(useSearch()).get("failed") ?? ""];
  const query = queries.externalAuth(id);
  const link = useQuery(query);
  const [ending, end] = useState(false);
  useTitle(link.data?.display_name ?? "Linked account");
  if (gone(link.error))
    return (
      <Empty page title="Unknown provider" action={<LinkButton href={paths.account}>Your account</LinkButton>}>
        Check the address, or ask your admin to configure this provider.
      </Empty>
    );
  if (!link.data) return <PendingPage query={link} what="account" title="Linked account" />;
  const { display_name: name, display_icon: icon, authenticated, validate_error: problem } = link.data;
  return (
    <Page
      narrow
      title={
        <span className="flex items-center gap-2">
          <Icon src={icon} name={name} /> {name}
        </span>
      }
      subtitle="Linked account for Git and templates in your workspaces"
    >
      {failed && !authenticated && <Note title={`Your ${name} account is not linked.`}>{failed}</Note>}
      {problem && (
        <Note tone="warn" title={problem}>
          Sign in again to renew the link.
        </Note>
      )}
      <Card>
        <div className="flex flex-col items-start gap-3">
          {authenticated ? (
            <>
              <p className="flex items-center gap-2">
                <Badge tone="ok">Linked</Badge> Git in your workspaces now signs in automatically. You can close this
                page.
              </p>
              <Button onClick={() => end(true)}>
                <Unlink /> Unlink
              </Button>
            </>
          ) : (
            <>
              <p>
                Link your {name} account to use it in your workspaces. Programs in your workspaces can read its token.
              </p>
              {link.data.device ? (
                <LinkByCode id={id} name={name} onLinked={link.refetch} />
              ) : (
                <a className={buttonClass("primary")} href={paths.externalAuthLink(id)}>
                  <LogIn /> {`Link ${name}`}
                </a>
              )}
            </>
          )}
        </div>
      </Card>
      {authenticated && link.data.app_installable && (
        <Installations name={name} of={link.data.installations} at={link.data.app_install_url} />
      )}
      {ending && (
        <Confirm
          title={`Unlink ${name}?`}
          action="Unlink"
          danger
          onConfirm={() => unlink(id).finally(() => void link.refetch())}
          onClose={() => end(false)}
        >
          Git in your workspaces can no longer sign in there, and workspaces whose templates need this account cannot
          start.{" "}
          {link.data.supports_revocation
            ? `${name} revokes the access as well.`
            : `To revoke the access as well, use your settings at ${name}.`}
        </Confirm>
      )}
    </Page>
  );
}
