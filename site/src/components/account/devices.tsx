// The user's devices that reach workspaces with a WireGuard app.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, Pencil, Plus, Smartphone, X } from "lucide-react";
import { useState } from "react";
import { ApiError, send } from "~/api/client";
import { queries } from "~/api/queries";
import type { UserDevice, WireGuardGateway } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { CopyButton } from "~/components/ui/copy";
import { cx } from "~/components/ui/cx";
import { Confirm, DoneDialog, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Checkbox, Field, inputClass, Select, TextField, useFields } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Note } from "~/components/ui/note";
import { Pending } from "~/components/ui/pending";
import { mono, Table } from "~/components/ui/table";
import { day, lifetimeName } from "~/lib/format";
import { fileName, isKey, newPair, wgQuick } from "~/lib/wireguard";

const serves = (g: WireGuardGateway | undefined) => g !== undefined && (g.enabled || g.regions.length > 0);

const over = (d: UserDevice) => Date.parse(d.expires_at) <= Date.now();

export default function Devices() {
  const devices = useQuery(queries.devices());
  const { data: gateway } = useQuery(queries.wireguardGateway());
  const client = useQueryClient();
  const [adding, add] = useState(false);
  const [renaming, rename] = useState<UserDevice | null>(null);
  const [removing, remove] = useState<UserDevice | null>(null);
  const reread = () => client.invalidateQueries({ queryKey: queries.devices().queryKey });
  return (
    <Card
      flush
      title="Devices"
      actions={
        <span className="flex flex-wrap items-center gap-4">
          <DocsLink to="devices">Phones and other devices</DocsLink>
          {serves(gateway) && (
            <Button small onClick={() => add(true)}>
              <Plus /> Add device
            </Button>
          )}
        </span>
      }
    >
      <Pending query={devices} what="devices" />
      {gateway && devices.data?.length === 0 && (
        <Empty icon={<Smartphone />} title="No devices">
          {serves(gateway) ? "A phone or another device with a WireGuard app reaches your workspaces by name." : closed}
        </Empty>
      )}
      {devices.data && devices.data.length > 0 && (
        <>
          <Table
            label="Devices"
            rows={devices.data}
            id={(d) => d.id}
            columns={[
              { name: "Name", cell: (d) => d.name, className: "font-medium" },
              { name: "Address", cell: (d) => d.address, className: cx(mono, "break-all") },
              ...(devices.data.some((d) => d.region)
                ? [{ name: "Region", cell: (d: UserDevice) => d.region || "–" }]
                : []),
              {
                name: "Last used",
                className: "whitespace-nowrap",
                cell: (d) => (d.last_used_at ? <Ago at={d.last_used_at} /> : "Never"),
              },
              {
                name: "Expires",
                className: "whitespace-nowrap",
                cell: (d) => (over(d) ? <Badge>Expired</Badge> : <Ago at={d.expires_at} ahead />),
              },
              {
                name: "Actions",
                action: true,
                cell: (d) => (
                  <span className="inline-flex gap-1">
                    <IconButton label={`Rename device ${d.name}`} onClick={() => rename(d)}>
                      <Pencil />
                    </IconButton>
                    <IconButton label={`Remove device ${d.name}`} onClick={() => remove(d)}>
                      <X />
                    </IconButton>
                  </span>
                ),
              },
            ]}
          />
          {gateway && !serves(gateway) && <p className="border-t border-line p-4 text-[13px] text-muted">{closed}</p>}
        </>
      )}
      {adding && gateway && (
        <AddDevice
          gateway={gateway}
          onAdded={() => void reread()}
          onClose={() => {
            add(false);
            void reread();
          }}
        />
      )}
      {renaming && (
        <RenameDevice
          device={renaming}
          onClose={() => {
            rename(null);
            void reread();
          }}
        />
      )}
      {removing && (
        <Confirm
          title={`Remove device ${removing.name}?`}
          action="Remove"
          danger
          onConfirm={async () => {
            await send("DELETE users/{user}/devices/{device}", { user: "me", device: removing.id });
            await reread();
          }}
          onClose={() => remove(null)}
        >
          It is disconnected immediately, and its configuration no longer works.
        </Confirm>
      )}
    </Card>
  );
}

const closed = "This deployment has no WireGuard gateway that devices could connect to. Its operator can open one.";

// lifetimes returns the choices, in nanoseconds, with the longest that the deployment allows at the end.
export const lifetimes = (longest: number) => [
  ...[1, 7, 30, 90].map((d) => d * day).filter((l) => l < longest),
  longest,
];

interface Added {
  device: UserDevice;
  text: string; // its configuration
  code: boolean[][] | undefined; // the configuration as a QR code, if it is complete
}

function AddDevice({
  gateway,
  onAdded,
  onClose,
}: {
  gateway: WireGuardGateway;
  onAdded: () => void;
  onClose: () => void;
}) {
  const { values, field } = useFields({ name: "", public_key: "" });
  const choices = lifetimes(gateway.max_device_lifetime);
  const [lifetime, setLifetime] = useState(gateway.max_device_lifetime);
  const [own, bring] = useState(false);
  const [region, choose] = useState(gateway.enabled ? "" : (gateway.regions[0]?.region ?? ""));
  const at = gateway.regions.find((r) => r.region === region);
  const create = useMutation({
    gcTime: 0, // the result has a private key
    mutationFn: async (): Promise<Added> => {
      const publicKey = values.public_key.trim();
      if (own && !isKey(publicKey)) throw refusal;
      // What the configuration needs comes first: a device whose private key cannot be shown is useless.
      const [pair, { encode }] = await Promise.all([own ? { publicKey, privateKey: undefined } : newPair(), qrCodes()]);
      const device = await send("POST users/{user}/devices", {
        user: "me",
        body: { name: values.name, public_key: pair.publicKey, lifetime, region: at?.region },
      });
      const text = wgQuick(at ? { ...gateway, ...at } : gateway, device, pair.privateKey);
      // The screen is clean and close: the smallest code is read best.
      return { device, text, code: pair.privateKey ? encode(text, { ecc: "L", border: 4 }).data : undefined };
    },
    onSuccess: onAdded,
  });
  if (create.data) return <Configuration {...create.data} onClose={onClose} />;
  return (
    <FormDialog title="Add device" request={create} submit="Add device" onClose={onClose}>
      <TextField label="Name" required autoFocus hint="Such as phone" {...field("name")} />
      <Field name="lifetime" label="Lifetime" hint="After that, the device no longer connects.">
        {(props) => (
          <Select {...props} value={lifetime} onChange={(e) => setLifetime(Number(e.target.value))}>
            {choices.map((l) => (
              <option key={l} value={l}>
                {lifetimeName(l)}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {gateway.regions.length > 0 && (
        <Field
          name="region"
          label="Connects to"
          hint={at && "This region could connect as you to what the device may reach."}
        >
          {(props) => (
            <Select {...props} value={region} onChange={(e) => choose(e.target.value)}>
              {gateway.enabled && <option value="">The server</option>}
              {gateway.regions.map((r) => (
                <option key={r.region} value={r.region}>
                  {r.display_name}
                </option>
              ))}
            </Select>
          )}
        </Field>
      )}
      <Checkbox
        label="I have a key pair"
        hint="Otherwise this browser makes one. The server gets only the public key."
        checked={own}
        onChange={bring}
      />
      {own && (
        <TextField
          label="Public key"
          required
          autoComplete="off"
          spellCheck={false}
          hint="As wg pubkey prints it. Keep the private key on the device."
          className="font-mono"
          {...field("public_key")}
        />
      )}
    </FormDialog>
  );
}

const qrCodes = () => import("uqr");

const refusal = new ApiError(400, "This is not a public key of WireGuard. It was not sent.", "", [
  { field: "public_key", detail: "must be 44 characters that end in =, as wg pubkey prints them" },
]);

// Configuration shows a new device's configuration. Its private key is nowhere else.
function Configuration({ device, text, code, onClose }: Added & { onClose: () => void }) {
  return (
    <DoneDialog title={`Configuration of ${device.name}`} onClose={onClose}>
      {code ? (
        <Note tone="warn" title="Keep this configuration now. It cannot be shown again.">
          The private key was made in this browser, and the server does not have it. Anyone who has the configuration
          can reach your workspaces.
        </Note>
      ) : (
        <Note tone="accent" title="Add your private key to this configuration.">
          It belongs in the place of the line that begins with #.
        </Note>
      )}
      {code && (
        <figure className="flex flex-col items-center gap-2">
          <QRCode code={code} label={`QR code of the configuration of ${device.name}`} />
          <figcaption className="text-[13px] text-muted">In the WireGuard app, add a tunnel from a QR code.</figcaption>
        </figure>
      )}
      <div className="flex flex-col gap-2">
        <textarea
          readOnly
          aria-label="Configuration"
          rows={11}
          wrap="off"
          spellCheck={false}
          className={cx(inputClass, "py-1.5 font-mono text-[13px]")}
          value={text}
          onFocus={(e) => e.target.select()}
        />
        <span className="flex items-center gap-2">
          <Button small onClick={() => save(fileName(device.name), text)}>
            <Download /> Download {fileName(device.name)}
          </Button>
          <CopyButton text={text} label="Copy configuration" />
        </span>
      </div>
    </DoneDialog>
  );
}

// save hands a text to the browser's downloads.
function save(name: string, text: string) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

// QRCode draws a code with its quiet zone. It is black on white in every theme: scanners need that.
function QRCode({ code, label }: { code: boolean[][]; label: string }) {
  const dark = code.flatMap((row, y) => row.flatMap((on, x) => (on ? [`M${x} ${y}h1v1h-1z`] : [])));
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${code.length} ${code.length}`}
      shapeRendering="crispEdges"
      className="w-full max-w-80 rounded-md bg-white"
    >
      <path d={dark.join("")} fill="#000" />
    </svg>
  );
}

function RenameDevice({ device, onClose }: { device: UserDevice; onClose: () => void }) {
  const { values, field } = useFields({ name: device.name });
  const rename = useMutation({
    mutationFn: () => send("PATCH users/{user}/devices/{device}", { user: "me", device: device.id, body: values }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title={`Rename device ${device.name}`} request={rename} submit="Rename" onClose={onClose}>
      <TextField label="Name" required autoFocus {...field("name")} />
    </FormDialog>
  );
}
