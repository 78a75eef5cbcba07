// What a user without workspaces, or with a first one, does next. Every step is ticked by what exists.
import { useQuery } from "@tanstack/react-query";
import { Boxes, CircleCheck, CircleDashed, Plus } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { measured, queries } from "~/api/queries";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyLine } from "~/components/ui/copy";
import { cx } from "~/components/ui/cx";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { LinkButton } from "~/components/ui/link-button";
import { installCommand, systemOf } from "~/lib/downloads";
import { paths } from "~/lib/path";
import { sh } from "~/lib/shell";

interface Facts {
  workspaces: number; // the user's own
  templates: number | undefined; // that the user may see; undefined: not known yet
  editor: boolean; // the user creates templates
}

interface Step {
  key: string;
  title: string;
  done: boolean;
  children: ReactNode;
}

// Whether the user has hidden the list, in this browser.
const hiddenKey = "onboarding-hidden";

export default function Onboarding(facts: Facts) {
  const [hidden, setHidden] = useState(() => localStorage.getItem(hiddenKey) !== null);
  const used = useQuery({ ...measured(queries.connectionTypes(), 10_000), enabled: !hidden });
  const steps = stepsOf(facts, used.data?.types ?? []);
  const done = steps.filter((s) => s.done).length;
  if (hidden) return facts.workspaces === 0 && <First {...facts} />;
  if (facts.templates === undefined || used.isPending || done === steps.length) return null;
  const next = steps.find((s) => !s.done);
  return (
    <Card
      title={
        <>
          Get started{" "}
          <span className="text-[13px] font-normal text-muted">
            {done} of {steps.length} done
          </span>
        </>
      }
      actions={
        <Button
          small
          look="quiet"
          onClick={() => {
            localStorage.setItem(hiddenKey, "1");
            setHidden(true);
          }}
        >
          Hide
        </Button>
      }
      flush
    >
      <ErrorNote error={used.error} />
      {facts.workspaces === 0 && <p className="px-4 pt-3 text-muted">You have no workspaces yet.</p>}
      <ol aria-label="Get started" className="divide-y divide-line">
        {steps.map((s) => (
          <li key={s.key} aria-current={s === next ? "step" : undefined} className="flex gap-3 px-4 py-3">
            {s.done ? (
              <CircleCheck className="mt-0.5 size-5 shrink-0 text-ok" role="img" aria-label="Done" />
            ) : (
              <CircleDashed className="mt-0.5 size-5 shrink-0 text-muted" role="img" aria-label="To do" />
            )}
            <div className="min-w-0 flex-1">
              <p className={cx("font-medium", s.done && "text-muted")}>{s.title}</p>
              {!s.done && <div className="mt-1 flex flex-col items-start gap-2 text-muted">{s.children}</div>}
            </div>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function stepsOf({ workspaces, templates = 0, editor }: Facts, used: string[]): Step[] {
  // What the browser does is no sign of an installed program.
  const outside = used.filter((type) => type !== "reconnecting_pty" && type !== "workspace_app");
  const template: Step = {
    key: "template",
    title: "Create the first template",
    done: templates > 0,
    children: (
      <>
        <p>
          A template defines what a workspace runs on: a container, a virtual machine, a process. Use one that comes
          with the server, or upload your own.
        </p>
        <LinkButton look="primary" href={paths.newTemplate}>
          <Plus /> Create the first template
        </LinkButton>
      </>
    ),
  };
  const workspace: Step = {
    key: "workspace",
    title: "Create your first workspace",
    done: workspaces > 0,
    children:
      templates > 0 ? (
        <>
          <p>A workspace is your development environment, created from a template.</p>
          <LinkButton look="primary" href={paths.templates}>
            Choose a template
          </LinkButton>
        </>
      ) : (
        <p>{editor ? "It needs a template." : "Workspaces are created from templates. Ask an admin to create one."}</p>
      ),
  };
  const install: Step = {
    key: "install",
    title: "Install the command line on your computer",
    done: outside.length > 0,
    children: (
      <>
        <div className="flex w-full max-w-xl flex-col gap-2">
          <CopyLine label="install command" text={installCommand(systemOf(navigator.userAgent), location.origin)} />
          <CopyLine label="login command" text={sh`coder login ${location.origin}`} />
        </div>
        <p className="text-[13px]">
          <Link className="underline" href={paths.downloads}>
            Downloads for all systems
          </Link>
          . This step is done once you have connected.
        </p>
      </>
    ),
  };
  const connect: Step = {
    key: "connect",
    title: "Connect your editor",
    done: outside.some((type) => type !== "port_forwarding"),
    children: (
      <>
        <p>Run this once. Then open the workspace in any editor with SSH support, or from the workspace page.</p>
        <div className="w-full max-w-xl">
          <CopyLine label="SSH setup command" text="coder config-ssh" />
        </div>
        <DocsLink to="connecting">Connecting</DocsLink>
      </>
    ),
  };
  return [...(editor ? [template] : []), workspace, install, connect];
}

// First helps a user without workspaces who has hidden the list.
function First({ templates, editor }: Facts) {
  const create = templates === 0 && editor;
  return (
    <Card>
      <Empty
        icon={<Boxes />}
        title={templates === 0 ? "No templates yet" : "You have no workspaces"}
        action={
          (create || templates !== 0) && (
            <LinkButton look="primary" href={create ? paths.newTemplate : paths.templates}>
              {create ? "Create the first template" : "Choose a template"}
            </LinkButton>
          )
        }
      >
        {templates === 0 && !editor
          ? "Workspaces are created from templates. Ask an admin to create one."
          : "A workspace is your development environment. Connect with a terminal, SSH or your editor."}
      </Empty>
    </Card>
  );
}
