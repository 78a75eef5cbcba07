// How the owner of a workspace starts its external agent: a command with a secret, shown on request.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { queries } from "~/api/queries";
import type { Workspace, WorkspaceAgent } from "~/api/types";
import { Button } from "~/components/ui/button";
import { CopyLine } from "~/components/ui/copy";
import { Pending } from "~/components/ui/pending";

export function ExternalAgent({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const [shown, setShown] = useState(false);
  const how = useQuery({ ...queries.externalAgent(workspace, agent.name), enabled: shown });
  return (
    <div className="flex flex-col items-start gap-2">
      <p>You start this agent yourself. Run a command on its machine, as the account that the workspace should have.</p>
      {!shown ? (
        <Button onClick={() => setShown(true)}>Show the command</Button>
      ) : how.data ? (
        <div className="w-full max-w-2xl">
          <CopyLine label="command that starts the agent" text={how.data.command} />
          <p className="mt-1 text-[13px] text-muted">
            It contains the agent's token: keep it secret. The next start of the workspace makes a new token.
          </p>
        </div>
      ) : (
        <Pending query={how} what="the command" />
      )}
    </div>
  );
}
