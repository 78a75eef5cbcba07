import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { LogIn, Unlink } from "lucide-react";
import { useState } from "react";
import { useSearch } from "wouter";
import { send } from "~/api/client";
import { gone, queries } from "~/api/queries";
import { Confirm } from "~/components/dialog";
import {
  Badge,
  Button,
  buttonClass,
  Card,
  Empty,
  ErrorNote,
  Icon,
  LinkButton,
  Loading,
  Note,
  Page,
} from "~/components/ui";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

// Why a sign-in did not come about, by the server's word for it. The address says it, and anybody can write an address: other words
// are not shown.
const reasons: Record<string, string> = {
  denied: "The sign-in there was declined.",
  state: "The sign-in was not begun in this browser and session, or it took too long.",
  exchange:
    "The service did not take the sign-in. Its operator and this server's must agree on the client and the callback address.",
  refused: "The service signed you in, and then did not accept its own token.",
  away: "The service could not be reached.",
};

// The page where a user links an account at another service, and ends the link.
export default function ExternalAuthPage({ id }: { id: string }) {
  const client = useQueryClient();
  const failed = reasons[new URLSearchParams(useSearch()).get("failed") ?? ""];
  const query = queries.externalAuth(id);
  const link = useQuery(query);
  const [ending, end] = useState(false);
  const unlink = useMutation({
    mutationFn: () => send("DELETE", `external-auth/${encodeURIComponent(id)}`),
    onSettled: () => client.invalidateQueries({ queryKey: ["external-auth"] }),
  });
  useTitle(link.data?.display_name ?? "Login");
  if (gone(link.error))
    return (
      <Empty title="Unknown provider" action={<LinkButton href={paths.account}>Your account</LinkButton>}>
        Ask an administrator to configure it.
      </Empty>
    );
  if (link.error)
    return (
      <Page title="Login">
        <ErrorNote error={link.error} />
      </Page>
    );
  if (!link.data) return <Loading what="login" />;
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
      {failed && !authenticated && <Note title={`Your account of ${name} is not linked.`}>{failed}</Note>}
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
                <Badge tone="ok">Linked</Badge> Git in your workspaces signs in by itself. You may close this page.
              </p>
              <Button onClick={() => end(true)}>
                <Unlink /> Unlink
              </Button>
            </>
          ) : (
            <>
              <p>{`Link your account of ${name} to use it in your workspaces. Their programs can ask for its token while they run.`}</p>
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
          onConfirm={() => unlink.mutateAsync()}
          onClose={() => end(false)}
        >
          {`Git in your workspaces cannot sign in there any more, and templates that need the login do not start. What ${name} has granted stays there until you revoke it in its own settings.`}
        </Confirm>
      )}
    </Page>
  );
}
