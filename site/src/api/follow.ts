// Builds that the user has started here, followed to their end on whatever page the user is by then.
import { type QueryClient, QueryObserver } from "@tanstack/react-query";
import { paths } from "~/lib/path";
import { toast } from "~/lib/toasts";
import { gone, queries } from "./queries";
import type { WorkspaceBuild } from "./types";

const done = { start: "Started", stop: "Stopped", delete: "Deleted" };
const doing = { start: "Starting", stop: "Stopping", delete: "Deleting" };

// followBuild reports how a build ends, unless its workspace is on screen. Events announce the end.
export function followBuild(client: QueryClient, build: WorkspaceBuild) {
  const stop = new QueryObserver(client, queries.buildByID(build.id)).subscribe(({ data, error }) => {
    const vanished = gone(error) && build.transition === "delete"; // deleted with its workspace
    if (!error && !data?.job.completed_at) return;
    stop();
    if (vanished) report({ ...build, status: "deleted" });
    else if (data?.job.completed_at) report(data);
  });
}

function report({ workspace_name: name, workspace_owner_name: owner, build_number, transition, ...b }: WorkspaceBuild) {
  const { pathname } = location;
  const page = paths.workspace(owner, name);
  if (pathname === page || pathname.startsWith(`${page}/`)) return;
  if (b.status === "failed" || b.status === "canceled")
    toast({
      tone: "bad",
      text:
        b.status === "failed" ? `${doing[transition]} ${name} failed.` : `${doing[transition]} ${name} was canceled.`,
      to: paths.build(owner, name, build_number),
    });
  else toast({ tone: "ok", text: `${done[transition]} ${name}.`, ...(transition === "start" && { to: page }) });
}
