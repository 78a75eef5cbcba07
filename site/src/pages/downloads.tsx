// The command line of this server for every system, and how to install it.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyButton, CopyLine } from "~/components/ui/copy";
import { DocsLink } from "~/components/ui/docs-link";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";
import { archName, type Download, installCommand, parse, type System, systemOf, systems } from "~/lib/downloads";
import { useTitle } from "~/lib/hooks";
import { sh } from "~/lib/shell";

async function readDownloads(): Promise<Download[]> {
  const response = await fetch("/bin/SHA256SUMS", { cache: "no-store" });
  if (!response.ok) throw new Error(`The server answered ${response.status} for its list of downloads.`);
  return parse(await response.text());
}

export default function Downloads() {
  useTitle("Downloads");
  const all = useQuery({ queryKey: ["downloads"], queryFn: readDownloads });
  const here = systemOf(navigator.userAgent);
  const [system, choose] = useState<System>(here ?? "linux");
  const offered = all.data?.filter((d) => d.system === system) ?? [];
  return (
    <Page
      narrow
      title="Downloads"
      subtitle="The command line that matches this server"
      actions={<DocsLink to="install#the-command-line">Installing</DocsLink>}
    >
      <div role="group" aria-label="System" className="flex flex-wrap gap-1">
        {systems.map((s) => (
          <Button
            key={s.system}
            aria-pressed={s.system === system}
            className="aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent"
            onClick={() => choose(s.system)}
          >
            {s.name} {s.system === here && <Badge>this computer</Badge>}
          </Button>
        ))}
      </div>
      <Card title="Install">
        <div className="flex flex-col gap-3">
          <p>
            {system === "windows" ? "Run this in PowerShell." : "Run this in a terminal."} It verifies the download with
            the checksums below. Run it again after an upgrade of the server.
          </p>
          <CopyLine label="install command" text={installCommand(system, location.origin)} />
          <p>Then sign in:</p>
          <CopyLine label="login command" text={sh`coder login ${location.origin}`} />
        </div>
      </Card>
      <Card title="Files" flush>
        <Pending query={all} what="downloads" />
        {all.data && (
          <Table
            label="Files"
            rows={offered}
            id={(d) => d.name}
            columns={[
              {
                name: "File",
                cell: (d) =>
                  d.sha256 ? (
                    <a className="font-mono text-accent hover:underline" href={`/bin/${d.name}`} download={d.name}>
                      {d.name}
                    </a>
                  ) : (
                    <span className="font-mono text-muted">{d.name}</span>
                  ),
              },
              {
                name: "For",
                cell: (d) => (
                  <>
                    {archName(d.arch)}{" "}
                    {d.full && <Badge title="For provisioners on other machines">server program</Badge>}
                  </>
                ),
              },
              { name: "SHA-256", cell: (d) => <Checksum of={d} />, className: mono },
            ]}
          />
        )}
      </Card>
      {offered.some((d) => !d.sha256) && (
        <p className="text-[13px] text-muted">
          Releases have every platform. This server was built for some: its operator adds others with{" "}
          <code>make build SLIM=all</code>.
        </p>
      )}
      <p className="text-[13px] text-muted">
        <a className="text-accent underline" href="/bin/SHA256SUMS">
          SHA256SUMS
        </a>{" "}
        has all checksums, for <code>sha256sum --check --ignore-missing</code>.
      </p>
    </Page>
  );
}

function Checksum({ of: d }: { of: Download }) {
  if (!d.sha256) return <Badge tone="warn">not on this server</Badge>;
  return (
    <span className="flex items-center gap-1">
      <span className="truncate" title={d.sha256}>
        {d.sha256.slice(0, 16)}…
      </span>
      <CopyButton text={d.sha256} label={`Copy the checksum of ${d.name}`} />
    </span>
  );
}
