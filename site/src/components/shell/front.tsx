import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { queries } from "~/api/queries";
import { Icon } from "~/components/ui/icon";
import Banners from "./banners";

// Front is the frame of the pages for people who are not signed in.
export function Front({ title, children }: { title: string; children: ReactNode }) {
  const look = useQuery(queries.appearance()).data;
  return (
    <>
      <Banners of={look?.announcement_banners.filter((b) => b.enabled) ?? []} />
      <main className="flex min-h-screen items-start justify-center px-4 pt-[12vh] pb-8">
        <div className="flex w-full max-w-sm flex-col gap-5">
          <div className="flex items-center gap-3">
            <Icon src={look?.logo_url || "/favicon.svg"} name="" className="size-9" />
            <h1 className="text-xl font-semibold tracking-tight">{title}</h1>
          </div>
          <div className="rounded-lg border border-line bg-panel p-5">{children}</div>
        </div>
      </main>
    </>
  );
}
