// The new version of a workspace's template: what it is, what it changes, and the button that updates to it.
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { Workspace } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Button } from "~/components/ui/button";
import { Note } from "~/components/ui/note";
import { isBusy } from "~/components/ui/status";
import { paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";
import { type ActionProps, can } from "./actions";

export function UpdateNote({ workspace: w, act, busy }: ActionProps) {
  // The template may be hidden from the user.
  const version = useQuery({ ...queries.version(w.template_active_version_id), retry: false }).data;
  const ref = useTemplateRef();
  if (!w.outdated || isBusy(w.latest_build.status)) return null;
  return (
    <Note tone="accent" title="Update available">
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2">
        <span className="min-w-0">
          {version && (
            <>
              Version <span className="font-mono break-all">{version.name}</span>
              {version.message && `: ${version.message}`} · <Ago at={version.created_at} />.{" "}
            </>
          )}
          {w.template_require_active_version && "The next start uses it. "}
          {w.dormant_at && "Wake the workspace to update it."}
        </span>
        <span className="flex flex-wrap items-center gap-3">
          {version && (
            <Link className="text-accent hover:underline" href={changesOf(w, version.name, ref)}>
              See changes
            </Link>
          )}
          {w.permissions.build && !w.dormant_at && (
            <Button small disabled={!can(w, busy).update} onClick={() => act(w, "update")}>
              Update…
            </Button>
          )}
        </span>
      </div>
    </Note>
  );
}

function changesOf(w: Workspace, version: string, ref: ReturnType<typeof useTemplateRef>) {
  const template = ref({ id: w.template_id, name: w.template_name, organization_id: w.organization_id });
  return `${paths.version(template, version)}?tab=changes`;
}
