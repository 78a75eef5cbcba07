import { useQuery } from "@tanstack/react-query";
import { LogIn, Unlink } from "lucide-react";
import { useState } from "react";
import { useSearch } from "wouter";
import { segment, send } from "~/api/client";
import { gone, queries } from "~/api/queries";
import { Confirm } from "~/components/dialog";
import { Badge, Button, buttonClass, Card, Empty, Icon, LinkButton, Note, Page, PendingPage } from "~/components/ui";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

// Why a sign-in failed, by the code in the address. Other text is not shown: anyone can craft an address.
const reasons: Record<string, string> = {
  denied: "You declined the sign-in.",
  state: "The sign-in was started in another browser or session, or it took too long.",
  exchange: "The service rejected the sign-in. Ask your admin to check the client ID and the callback URL.",
  refused: "The service signed you in but then rejected its own token.",
  away: "The server cannot reach the service.",
};

// The page where a user links an account at another service, and ends the link.
export default function ExternalAuthPage({ id }: { id: string }) {
  const failed = reasons[new URLSearchParams(useSearch()).get("failed") ?? ""];
  const query = queries.externalAuth(id);
  const link = useQuery(query);
  const [ending, end] = useState(false);
  useTitle(link.data?.display_name ?? "Login");
  if (gone(link.error))
    return (
      <Empty title="Unknown provider" action={<LinkButton href={paths.account}>Your account</LinkButton>}>
        Ask an administrator to configure it.
      </Empty>
    );
  if (!link.data) return <PendingPage query={link} what="login" title="Login" />;
  const { display_name: name, display_icon: icon, authenticated, validate_error: problem } = link.data;
  return (
    <Page
      title={
        <span className="flex items-center gap-2">
          <Icon src={icon} name={name} /> {name}
        </span>
      }
      subtitle="Your login for git and templates in your workspaces"
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
              <p>{`Link your ${name} account to use it in your workspaces. Programs in them can read its token.`}</p>
              <a className={buttonClass("primary")} href={paths.externalAuthLink(id)}>
                <LogIn /> {`Link ${name}`}
              </a>
            </>
          )}
        </div>
      </Card>
      {ending && (
        <Confirm
          title={`Unlink ${name}?`}
          action="Unlink"
          danger
          onConfirm={() => send("DELETE", `external-auth/${segment(id)}`).finally(() => void link.refetch())}
          onClose={() => end(false)}
        >
          {`Git in your workspaces can no longer sign in there, and templates that need this login no longer start. To revoke the access itself, use the settings of ${name}.`}
        </Confirm>
      )}
    </Page>
  );
}
