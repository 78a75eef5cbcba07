// The shortest ways into a workspace of a list: its terminal, its editor and its first apps, as icons.
import { useQuery } from "@tanstack/react-query";
import { SquareTerminal } from "lucide-react";
import { openWithToken } from "~/api/actions";
import { queries } from "~/api/queries";
import type { Workspace } from "~/api/types";
import { Icon } from "~/components/ui/icon";
import { IconButton } from "~/components/ui/icon-button";
import { agentsOf } from "~/components/ui/status";
import { appLink, opens, wantsToken } from "~/lib/links";
import { paths } from "~/lib/path";
import { useRegion } from "~/lib/region";
import { messageOf, toast } from "~/lib/toasts";

const most = 2; // apps of a row: the workspace's page has all

export function RowApps({ workspace: w }: { workspace: Workspace }) {
  const host = useQuery(queries.appsHost()).data?.host ?? "";
  const region = useRegion();
  const agent = agentsOf(w.latest_build).find((a) => a.status === "connected");
  if (!agent || !w.permissions.connect || w.latest_build.status !== "running") return null;
  const shows = (name: (typeof agent.display_apps)[number]) => agent.display_apps.includes(name);
  const apps = agent.apps
    .filter((app) => !app.hidden && !wantsToken(app))
    .map((app) => {
      const to = appLink(w, agent, app, host, region);
      return { id: app.id, icon: app.icon, name: app.display_name || app.slug, to, open: opens(app, to) };
    })
    .filter((app) => app.to !== "");
  return (
    <>
      {shows("web_terminal") && (
        <a
          className={linkClass}
          href={paths.terminal(w.owner_name, w.name, agent.name)}
          target="_blank"
          rel="noopener"
          aria-label={`Terminal of ${w.name}`}
          title="Terminal"
        >
          <SquareTerminal />
        </a>
      )}
      {shows("vscode") && (
        <IconButton
          label={`VS Code for ${w.name}`}
          title="VS Code"
          className="text-muted hover:text-ink"
          onClick={() =>
            import("~/lib/editors")
              .then(({ editorLink }) => openWithToken((token) => editorLink("vscode", w, agent, token)))
              .catch((err: unknown) => toast({ tone: "bad", text: `VS Code for ${w.name}: ${messageOf(err)}` }))
          }
        >
          <Icon src="/icon/code.svg" name="VS Code" className="size-4" />
        </IconButton>
      )}
      {apps.slice(0, most).map((app) => (
        <a
          key={app.id}
          className={linkClass}
          href={app.to}
          onClick={app.open}
          target="_blank"
          rel="noopener noreferrer"
          aria-label={`${app.name} of ${w.name}`}
          title={app.name}
        >
          <Icon src={app.icon} name={app.name} className="size-4" />
        </a>
      ))}
    </>
  );
}

const linkClass =
  "inline-flex size-8 items-center justify-center rounded-md text-muted hover:bg-raised hover:text-ink [&_svg]:size-4";
