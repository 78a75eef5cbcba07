// Where a user is signed in, and signing out there.
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { LogOut, X } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { lists, pageOf, rowsPerPage } from "~/api/lists";
import type { User, UserSession } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm, DoneDialog } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { IconButton } from "~/components/ui/icon-button";
import { Pager } from "~/components/ui/pager";
import { Pending } from "~/components/ui/pending";

type Asking = { what: "one"; session: UserSession } | { what: "others" | "all" } | null;

// Sessions is the part of one's own account.
export default function Sessions() {
  const [asking, setAsking] = useState<Asking>(null);
  return (
    <Card
      flush
      title="Sessions"
      actions={
        <span className="flex flex-wrap gap-2">
          <Button small onClick={() => setAsking({ what: "others" })}>
            Sign out elsewhere…
          </Button>
          <Button small look="danger" onClick={() => setAsking({ what: "all" })}>
            <LogOut /> Sign out everywhere…
          </Button>
        </span>
      }
    >
      <List user="me" onEnd={(session) => setAsking({ what: "one", session })} />
      <Question user="me" asking={asking} onClose={() => setAsking(null)} />
    </Card>
  );
}

// UserSessions shows an administrator where another user is signed in.
export function UserSessions({ user, onClose }: { user: User; onClose: () => void }) {
  const [asking, setAsking] = useState<Asking>(null);
  return (
    <DoneDialog title={`Sessions of ${user.username}`} onClose={onClose}>
      <List user={user.id} onEnd={(session) => setAsking({ what: "one", session })} />
      <div>
        <Button small look="danger" onClick={() => setAsking({ what: "all" })}>
          <LogOut /> Sign out everywhere…
        </Button>
      </div>
      <Question user={user.id} name={user.username} asking={asking} onClose={() => setAsking(null)} />
    </DoneDialog>
  );
}

const nameOf = (s: UserSession) => s.device || "Unknown device";

function List({ user, onEnd }: { user: string; onEnd: (s: UserSession) => void }) {
  const [page, setPage] = useState(0);
  const sessions = useQuery({ ...lists.sessions(user, page), placeholderData: keepPreviousData });
  const { rows, count } = pageOf(sessions.data, page);
  if (sessions.data && count === 0) return <Empty title="No sessions" />;
  return (
    <>
      <Pending query={sessions} what="sessions" />
      <ul aria-label="Sessions" className="divide-y divide-line" hidden={!sessions.data}>
        {rows.map((s) => (
          <li key={s.id} className="flex items-center gap-3 px-4 py-2">
            <span className="min-w-0 flex-1">
              <span className="font-medium" title={s.user_agent}>
                {nameOf(s)}
              </span>{" "}
              {s.current && <Badge tone="ok">This session</Badge>}
              <span className="block text-[13px] text-muted">
                {s.address && <span className="font-mono">{s.address}</span>}
                {s.address && " · "}
                used <Ago at={s.last_used_at} /> · signed in <Ago at={s.created_at} />
              </span>
            </span>
            <IconButton label={`End the session of ${nameOf(s)}`} onClick={() => onEnd(s)}>
              <X />
            </IconButton>
          </li>
        ))}
      </ul>
      {(page > 0 || count > rowsPerPage) && (
        <div className="border-t border-line p-3">
          <Pager page={page} size={rowsPerPage} rows={rows.length} count={count} onPage={setPage} />
        </div>
      )}
    </>
  );
}

interface QuestionProps {
  user: string;
  name?: string; // of another user
  asking: Asking;
  onClose: () => void;
}

function Question({ user, name, asking, onClose }: QuestionProps) {
  const client = useQueryClient();
  if (!asking) return null;
  const end = () =>
    asking.what === "one"
      ? send("DELETE users/{user}/sessions/{key}", { user, key: asking.session.id })
      : send("DELETE users/{user}/sessions", {
          user,
          query: { except_current: asking.what === "others" || undefined },
        });
  const title = {
    one: asking.what === "one" ? `End the session of ${nameOf(asking.session)}?` : "",
    others: "Sign out elsewhere?",
    all: name ? `Sign ${name} out everywhere?` : "Sign out everywhere?",
  }[asking.what];
  const ownToo = !name && (asking.what === "all" || (asking.what === "one" && asking.session.current));
  return (
    <Confirm
      title={title}
      action={asking.what === "one" ? "End session" : "Sign out"}
      danger
      onConfirm={async () => {
        await end();
        await client.invalidateQueries({ queryKey: ["sessions", user] });
      }}
      onClose={onClose}
    >
      What these sessions have open ends at once. API tokens live on.
      {ownToo && " You sign in again here, too."}
    </Confirm>
  );
}
