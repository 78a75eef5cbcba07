// Everything in the user's inbox.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Bell, CheckCheck } from "lucide-react";
import { queries } from "~/api/queries";
import type { InboxNotification } from "~/api/types";
import { localLink, useMark } from "~/components/shell/inbox";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { LinkButton } from "~/components/ui/link-button";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { isOwner, useMe } from "~/components/ui/user";
import { plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

export default function Notifications() {
  useTitle("Notifications");
  const me = useMe();
  const inbox = useInfiniteQuery(queries.inboxPages());
  const { one, all } = useMark();
  const rows = inbox.data?.pages.flatMap((p) => p.notifications) ?? [];
  const unread = inbox.data?.pages[0]?.unread_count ?? 0;
  return (
    <Page
      narrow
      title="Notifications"
      subtitle={unread > 0 ? plural(unread, "unread notification") : undefined}
      actions={
        <>
          {unread > 0 && (
            <Button busy={all.isPending} onClick={() => all.mutate()}>
              <CheckCheck /> Mark all as read
            </Button>
          )}
          <LinkButton href={`${paths.account}#notifications`}>Preferences</LinkButton>
          {isOwner(me) && <LinkButton href={paths.deploymentNotifications}>Deployment</LinkButton>}
        </>
      }
    >
      <ErrorNote error={one.error ?? all.error} />
      <Card flush>
        <Pending query={inbox} what="notifications" />
        {inbox.data && rows.length === 0 && (
          <Empty icon={<Bell />} title="No notifications">
            You are notified here of what happens to your workspaces and your account.
          </Empty>
        )}
        {rows.length > 0 && (
          <ul aria-label="Notifications" className="divide-y divide-line">
            {rows.map((n) => (
              <Row key={n.id} of={n} onMark={(read) => one.mutate({ id: n.id, read })} />
            ))}
          </ul>
        )}
        {inbox.hasNextPage && (
          <div className="border-t border-line p-3 text-center">
            <Button small busy={inbox.isFetchingNextPage} onClick={() => void inbox.fetchNextPage()}>
              Show older
            </Button>
          </div>
        )}
      </Card>
    </Page>
  );
}

function Row({ of, onMark }: { of: InboxNotification; onMark: (read: boolean) => void }) {
  const mark = of.read_at ? "Mark as unread" : "Mark as read";
  return (
    <li
      id={of.id}
      className="flex flex-col gap-2 px-4 py-3 target:bg-raised sm:flex-row sm:items-start sm:justify-between"
    >
      <div className="min-w-0">
        <h2 className={cx("break-words", of.read_at ? "font-medium" : "font-semibold")}>
          {of.title} {!of.read_at && <Badge tone="accent">New</Badge>}
        </h2>
        <p className="break-words whitespace-pre-wrap text-muted">{of.content}</p>
        <p className="mt-1 text-xs text-muted">
          <Ago at={of.created_at} />
        </p>
      </div>
      <div className="flex shrink-0 flex-wrap gap-2">
        {of.actions.map((action) => {
          const to = localLink(action);
          return (
            to && (
              <LinkButton key={action.url} small href={to} onClick={() => !of.read_at && onMark(true)}>
                {action.label}
              </LinkButton>
            )
          );
        })}
        <Button small aria-label={`${mark}: ${of.title}`} onClick={() => onMark(!of.read_at)}>
          {mark}
        </Button>
      </div>
    </li>
  );
}
