// The user's notifications: the bell in the header, and what the page of all notifications shares with it.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Bell, CheckCheck, Inbox as InboxIcon, Settings } from "lucide-react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { InboxNotification } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { cx } from "~/components/ui/cx";
import { Item, Menu, MenuLabel, Separator } from "~/components/ui/menu";
import { paths } from "~/lib/path";

// Notifications that the bell's menu lists.
const shown = 7;

// useMark returns functions that mark notifications as read.
export function useMark() {
  const client = useQueryClient();
  const onSuccess = () => client.invalidateQueries({ queryKey: ["inbox"] });
  const one = useMutation({
    mutationFn: ({ id, read }: { id: string; read: boolean }) =>
      send("PUT notifications/inbox/{notification}/read-status", { notification: id, body: { is_read: read } }),
    onSuccess,
  });
  const all = useMutation({ mutationFn: () => send("PUT notifications/inbox/mark-all-as-read"), onSuccess });
  return { one, all };
}

// InboxMenu is the bell. It shows the number of unread notifications and the newest ones.
export function InboxMenu() {
  const inbox = useQuery(queries.inbox("all"));
  const { one, all } = useMark();
  const unread = inbox.data?.unread_count ?? 0;
  const newest = inbox.data?.notifications.slice(0, shown) ?? [];
  return (
    <Menu
      trigger={
        <button
          type="button"
          aria-label={unread > 0 ? `Notifications, ${unread} unread` : "Notifications"}
          title="Notifications"
          className="relative inline-flex size-8 items-center justify-center rounded-md hover:bg-raised"
        >
          <Bell className="size-4" aria-hidden />
          {unread > 0 && (
            <span
              aria-hidden
              className={cx(
                "absolute top-0 right-0 min-w-4 rounded-full bg-fill px-1",
                "text-center text-[10px] leading-4 font-semibold text-white",
              )}
            >
              {unread > 99 ? "99+" : unread}
            </span>
          )}
        </button>
      }
    >
      {newest.length === 0 && <MenuLabel>No notifications</MenuLabel>}
      {newest.map((n) => (
        <Item key={n.id} tall to={paths.notification(n.id)} onSelect={() => one.mutate({ id: n.id, read: true })}>
          <span className="flex max-w-80 min-w-0 flex-col py-1">
            <span className={cx("line-clamp-2 break-words", !n.read_at && "font-semibold")}>
              {!n.read_at && <span className="sr-only">Unread: </span>}
              {n.title}
            </span>
            <span className="text-xs text-muted">
              <Ago at={n.created_at} />
            </span>
          </span>
        </Item>
      ))}
      <Separator />
      {unread > 0 && (
        <Item icon={<CheckCheck />} onSelect={() => all.mutate()}>
          Mark all as read
        </Item>
      )}
      <Item icon={<InboxIcon />} to={paths.notifications}>
        All notifications
      </Item>
      <Item icon={<Settings />} to={`${paths.account}#notifications`}>
        Preferences
      </Item>
    </Menu>
  );
}

// localLink returns the path of an action's address on this server. Addresses of other hosts are not followed.
export function localLink(action: InboxNotification["actions"][number]): string | undefined {
  try {
    const url = new URL(action.url, location.origin);
    return url.protocol === "http:" || url.protocol === "https:" ? url.pathname + url.search + url.hash : undefined;
  } catch {
    return undefined;
  }
}
