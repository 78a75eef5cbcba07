import { useMutation } from "@tanstack/react-query";
import { KeyRound, LogIn } from "lucide-react";
import { send } from "~/api/client";
import type { CreateLoginCodeRequest } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyLine } from "~/components/ui/copy";
import { ErrorNote } from "~/components/ui/error-note";
import { Page } from "~/components/ui/page";
import { useMe } from "~/components/ui/user";
import { useTitle } from "~/lib/hooks";

// What `coder login` on this computer puts into the address of the page; undefined if the page was opened otherwise.
function terminal() {
  const query = new URLSearchParams(window.location.search);
  const port = Number(query.get("port"));
  const [state, challenge] = [query.get("state"), query.get("code_challenge")];
  if (!Number.isInteger(port) || port < 1 || port > 65535 || !state || !challenge) return undefined;
  return { port, state, challenge };
}

// The page that `coder login` opens. Only a click signs the program in: opening the page does not.
export default function CliAuth() {
  useTitle("Sign in from a terminal");
  const me = useMe();
  const asks = terminal();
  const create = useMutation({ mutationFn: () => send("POST users/{user}/keys", { user: "me" }) });
  const handOver = useMutation({
    mutationFn: async ({ port, state, challenge }: NonNullable<typeof asks>) => {
      const body: CreateLoginCodeRequest = { code_challenge: challenge };
      const { code } = await send("POST users/{user}/keys/codes", { user: "me", body });
      window.location.assign(`http://127.0.0.1:${port}/?${new URLSearchParams({ code, state }).toString()}`);
    },
  });
  const done = new URLSearchParams(window.location.search).has("done");
  return (
    <Page narrow title="Sign in from a terminal" subtitle={`As ${me.username}`}>
      <Card>
        {done ? (
          <p>The terminal is signed in. You can close this page.</p>
        ) : create.data ? (
          <div className="flex flex-col gap-3">
            <p>
              Paste this token into the terminal. It is shown only once. Keep it secret: it gives full access to your
              account.
            </p>
            <CopyLine text={create.data.key} label="session token" />
            <p className="text-muted">
              You can close this page. End the session on your account page or with <code>coder logout</code>.
            </p>
          </div>
        ) : asks ? (
          <div className="flex flex-col items-start gap-3">
            <p>
              A program on this computer asks to act as you. Continue only if you just started <code>coder login</code>.
            </p>
            <ErrorNote error={handOver.error ?? create.error} />
            <div className="flex flex-wrap gap-2">
              <Button look="primary" busy={handOver.isPending} onClick={() => handOver.mutate(asks)}>
                <LogIn /> Sign in
              </Button>
              <Button busy={create.isPending} onClick={() => create.mutate()}>
                <KeyRound /> Show a token
              </Button>
            </div>
            <p className="text-muted">
              If the terminal is on another computer, paste a token there: this browser cannot reach it.
            </p>
          </div>
        ) : (
          <div className="flex flex-col items-start gap-3">
            <p>
              A program on your computer is asking for a token to act as you. Create one only if you just started{" "}
              <code>coder login</code> or an editor extension.
            </p>
            <ErrorNote error={create.error} />
            <Button look="primary" busy={create.isPending} onClick={() => create.mutate()}>
              <KeyRound /> Create token
            </Button>
          </div>
        )}
      </Card>
    </Page>
  );
}
