// The accounts at other services that a template needs, and links to sign in to them.
import { useQuery } from "@tanstack/react-query";
import { LogIn } from "lucide-react";
import { queries } from "~/api/queries";
import { Badge } from "~/components/ui/badge";
import { buttonClass } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { ErrorNote } from "~/components/ui/error-note";
import { Icon } from "~/components/ui/icon";
import { paths } from "~/lib/path";

// useLogins returns the accounts that a version requires. An event announces one that was linked in another window.
export function useLogins(version: string, mine: boolean) {
  const query = useQuery({ ...queries.logins(version), enabled: mine });
  return { query, missing: mine && (query.data?.some((l) => !l.optional && !l.authenticated) ?? false) };
}

export function Logins({ of: { query } }: { of: ReturnType<typeof useLogins> }) {
  if (query.error) return <ErrorNote error={query.error} />;
  if (!query.data?.length) return null;
  return (
    <Card title="Linked accounts">
      <ul className="flex flex-col gap-3">
        {query.data.map((l) => (
          <li key={l.id} className="flex flex-wrap items-center gap-2">
            <Icon src={l.display_icon} name={l.display_name} /> <span className="font-medium">{l.display_name}</span>
            {l.authenticated ? (
              <Badge tone="ok">Linked</Badge>
            ) : l.type === "" ? (
              <Badge tone={l.optional ? "plain" : "bad"}>Not configured on this server</Badge>
            ) : (
              <>
                <Badge tone={l.optional ? "plain" : "warn"}>{l.optional ? "Optional" : "Required"}</Badge>
                <a
                  className={buttonClass("plain", true)}
                  href={paths.externalAuthLink(l.id)}
                  target="_blank"
                  rel="noreferrer"
                >
                  <LogIn /> {`Link ${l.display_name}`}
                </a>
              </>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}
