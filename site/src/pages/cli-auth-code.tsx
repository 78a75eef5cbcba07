import { useMutation } from "@tanstack/react-query";
import { LogIn } from "lucide-react";
import { useState } from "react";
import { get, send } from "~/api/client";
import type { WaitingProgram } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { ErrorNote } from "~/components/ui/error-note";
import { Facts } from "~/components/ui/facts";
import { Form, TextField } from "~/components/ui/form";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { useMe } from "~/components/ui/user";
import { duration } from "~/lib/format";
import { useTitle } from "~/lib/hooks";

// The page where users enter the code that `coder login` shows on a machine without a browser. The code is not read
// from the address: a link of another person must not fill it in.
export default function CliAuthCode() {
  useTitle("Sign in a terminal with a code");
  const me = useMe();
  const [code, setCode] = useState("");
  const find = useMutation({
    mutationFn: () => get("users/{user}/login-requests/{code}", { user: "me", code: code.trim() }),
  });
  const [answer, setAnswer] = useState<boolean>();
  return (
    <Page narrow title="Sign in a terminal with a code" subtitle={`As ${me.username}`}>
      <Card>
        {answer !== undefined ? (
          <p>{answer ? "The terminal is signed in. You can close this page." : "The terminal was refused."}</p>
        ) : find.data ? (
          <Question of={find.data} onAnswered={setAnswer} />
        ) : (
          <Form request={find} submit="Continue" disabled={code.trim() === ""}>
            <TextField
              label="Code"
              hint="As the terminal shows it, such as BCDF-GHJK."
              required
              autoFocus
              autoComplete="off"
              spellCheck={false}
              maxLength={16}
              value={code}
              onChange={setCode}
            />
            <Note tone="warn">
              Enter only a code of a terminal in front of you, on which you just started <code>coder login</code>. Never
              enter one that another person sent you.
            </Note>
          </Form>
        )}
      </Card>
    </Page>
  );
}

// Question tells who asks, and signs it in or refuses it.
function Question({ of, onAnswered }: { of: WaitingProgram; onAnswered: (approved: boolean) => void }) {
  const answer = useMutation({
    mutationFn: (approve: boolean) =>
      send("POST users/{user}/login-requests/{code}", { user: "me", code: of.user_code, body: { approve } }),
    onSuccess: (_, approve) => onAnswered(approve),
  });
  return (
    <div className="flex flex-col gap-4">
      <p>
        A program asks to act as you. It can do everything that you can, for {duration(of.session_seconds * 1000)} after
        its last use or until you end its session.
      </p>
      <Facts
        of={[
          ["Code", <code key="c">{of.user_code}</code>],
          ["Machine", of.host || "it did not say"],
          ["Program", of.program || "it did not say"],
          ["Address", of.address],
          ["Asked", <Ago key="a" at={of.created_at} />],
        ]}
      />
      {of.same_address ? (
        <Note tone="ok">
          The program asked from the address of this browser. It says itself which machine it is on.
        </Note>
      ) : (
        <Note tone="warn" title="The program is at another address than this browser">
          That is right if you just started <code>coder login</code> on another machine. If another person sent you the
          code, refuse it.
        </Note>
      )}
      <ErrorNote error={answer.error} />
      <div className="flex flex-wrap gap-2">
        <Button look="primary" busy={answer.isPending} onClick={() => answer.mutate(true)}>
          <LogIn /> Sign in
        </Button>
        <Button busy={answer.isPending} onClick={() => answer.mutate(false)}>
          Refuse
        </Button>
      </div>
    </div>
  );
}
