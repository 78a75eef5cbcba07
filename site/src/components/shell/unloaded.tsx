// What stands in for a page whose code cannot be loaded: the server was updated, does not answer, or has just ended
// while another one behind the same load balancer answers.
import { useEffect, useState } from "react";
import { Button } from "~/components/ui/button";
import { Empty } from "~/components/ui/empty";

const every = 1000; // ms between questions to a server that does not answer

type Server = "unknown" | "away" | "updated" | "same";

// ask finds out whether a server answers, and whether it has the dashboard that this page belongs to.
async function ask(): Promise<Server> {
  try {
    if (!(await fetch("/healthz", { cache: "no-store" })).ok) return "away";
    const index = await fetch("/", { cache: "no-store" });
    if (!index.ok) return "away";
    const entry = document.querySelector("script[type=module][src]")?.getAttribute("src");
    return entry && (await index.text()).includes(entry) ? "same" : "updated";
  } catch {
    return "away";
  }
}

// A reload that did not help must not follow another one without end.
const reloaded = "codermesh.unloaded";
const patience = 30_000; // ms

function reloadedJustNow(): boolean {
  const ago = Date.now() - Number(sessionStorage.getItem(reloaded));
  sessionStorage.setItem(reloaded, String(Date.now()));
  return ago < patience;
}

// Unloaded reloads once a server answers that has the code. reload is location.reload, except in tests.
export function Unloaded({ reload = () => location.reload() }: { reload?: () => void }) {
  const [server, setServer] = useState<Server>("unknown");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let ended = false;
    const next = async (was: Server) => {
      const is = await ask();
      if (ended) return;
      if (is === "away") timer = setTimeout(() => void next(is), every);
      else if (was === "away" || (is === "same" && !reloadedJustNow())) return reload();
      setServer(is);
    };
    void next("unknown");
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [reload]);
  if (server === "unknown") return null;
  if (server === "away")
    return (
      <Empty page title="Cannot reach the server">
        This page opens when the server answers again.
      </Empty>
    );
  // A server update removes the chunks of the old page.
  return (
    <Empty
      page
      title={server === "updated" ? "The server was updated" : "This page cannot be loaded"}
      action={
        <Button look="primary" onClick={reload}>
          Reload
        </Button>
      }
    >
      {server === "updated"
        ? "Reload to use the new dashboard."
        : "The server answers, but a part of the page does not arrive. A browser extension or a proxy may block it."}
    </Empty>
  );
}
