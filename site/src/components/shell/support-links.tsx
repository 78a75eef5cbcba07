// The operator's links, in the menu of the account.
import { useQuery } from "@tanstack/react-query";
import { BookOpen, Bug, LifeBuoy, MessageSquare, Star } from "lucide-react";
import type { ReactNode } from "react";
import { queries } from "~/api/queries";
import { Icon } from "~/components/ui/icon";
import { Item, Separator } from "~/components/ui/menu";
import { paths } from "~/lib/path";

const icons: Record<string, ReactNode> = {
  "": <LifeBuoy />,
  bug: <Bug />,
  chat: <MessageSquare />,
  docs: <BookOpen />,
  star: <Star />,
};

// follow opens an address of the operator in another tab. Programs of the machine, as for mail, open without one.
const follow = (target: string) =>
  target.startsWith("mailto:") ? location.assign(target) : window.open(target, "_blank", "noopener,noreferrer");

// Help leads to the documentation and to the operator's links.
export default function Help() {
  const look = useQuery(queries.appearance()).data;
  const info = useQuery(queries.buildInfo()).data;
  const own = !look?.docs_url || look.docs_url === `${info?.dashboard_url}/docs`;
  return (
    <>
      <Item icon={<BookOpen />} {...(own ? { to: paths.docs() } : { onSelect: () => follow(look.docs_url) })}>
        Documentation
      </Item>
      {look && look.support_links.length > 0 && <Separator />}
      {look?.support_links.map((l) => (
        <Item
          key={`${l.name} ${l.target}`}
          icon={icons[l.icon] ?? <Icon src={l.icon} name="" className="size-4" />}
          onSelect={() => follow(l.target)}
        >
          {l.name}
        </Item>
      ))}
      {look && look.support_links.length > 0 && <Separator />}
    </>
  );
}
