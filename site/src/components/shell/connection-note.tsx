// What the dashboard says while the server does not answer, or cannot serve.
import { useQueryClient } from "@tanstack/react-query";
import { WifiOff } from "lucide-react";
import { useEffect, useRef } from "react";
import { probe, useLink } from "~/api/client";

const every = 1000; // ms between questions, on average

// ConnectionNote shows that the server does not answer or cannot serve, and why. It asks until the server serves, then
// refreshes everything on screen.
export function ConnectionNote() {
  const { server, trouble } = useLink();
  const client = useQueryClient();
  const well = server === "ok";
  const was = useRef(well);
  useEffect(() => {
    if (!was.current && well) void client.invalidateQueries();
    was.current = well;
    if (well) return;
    let timer: ReturnType<typeof setTimeout>;
    let ended = false;
    const wait = () => {
      if (!ended) timer = setTimeout(() => void probe().finally(wait), every * (0.5 + Math.random()));
    };
    wait();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [well, client]);
  if (well) return null;
  return (
    <div
      role="alert"
      className="sticky top-12 z-20 flex items-center justify-center gap-2 bg-warn-soft px-3 py-1.5 text-warn"
    >
      <WifiOff className="size-4 shrink-0" aria-hidden />{" "}
      {server === "lost"
        ? "Cannot reach the server. Data may be out of date. Reconnecting…"
        : `${trouble} Data may be out of date. This page goes on when it can.`}
    </div>
  );
}
