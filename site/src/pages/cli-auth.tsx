import { useMutation } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import { send } from "~/api/client";
import type { CreateTokenResponse } from "~/api/types";
import { CopyLine } from "~/components/copy";
import { Button, Card, ErrorNote, Page } from "~/components/ui";
import { useMe } from "~/components/user";
import { useTitle } from "~/lib/hooks";

// The page that `coder login` opens. Only a click creates the token: opening the page does not.
export default function CliAuth() {
  useTitle("Sign in from a terminal");
  const me = useMe();
  const create = useMutation({ mutationFn: () => send<CreateTokenResponse>("POST", "users/me/keys") });
  return (
    <Page narrow title="Sign in from a terminal" subtitle={`As ${me.username}`}>
      <Card>
        {create.data ? (
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
