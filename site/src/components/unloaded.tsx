// What stands in for a page whose code cannot be loaded: the server was updated, or does not answer.
import { useEffect, useState } from "react";
import { Button, Empty } from "./ui";

const every = 1000; // ms between questions to a server that does not answer

// Unloaded reloads once a server that was away answers again. reload is location.reload, except in tests.
export function Unloaded({ reload = () => location.reload() }: { reload?: () => void }) {
  const [server, setServer] = useState<"unknown" | "here" | "away">("unknown");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let was: "unknown" | "away" | undefined = "unknown";
    const ask = () =>
      fetch("/healthz", { cache: "no-store" })
        .then(
          (r) => r.ok,
          () => false,
        )
        .then((answers) => {
          if (was === undefined) return;
          if (answers && was === "away") reload();
          else if (answers) setServer("here");
          else {
            was = "away";
            setServer("away");
            timer = setTimeout(() => void ask(), every);
          }
        });
    void ask();
    return () => {
      was = undefined;
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
      title="The server was updated"
      action={
        <Button look="primary" onClick={reload}>
          Reload
        </Button>
      }
    >
      Reload to use the new dashboard.
    </Empty>
  );
}
