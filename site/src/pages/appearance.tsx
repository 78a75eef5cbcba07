// How the deployment presents itself: its name, its logo and its announcements.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { Appearance, Banner } from "~/api/types";
import Banners from "~/components/shell/banners";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Checkbox, Form, TextField } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { PendingPage } from "~/components/ui/pending";
import { isOwner, useMe } from "~/components/ui/user";
import { useTitle } from "~/lib/hooks";

const most = 5;

export default function AppearancePage() {
  useTitle("Appearance");
  const me = useMe();
  const look = useQuery(queries.appearance());
  if (!isOwner(me))
    return (
      <Page narrow title="Appearance">
        <Note tone="warn" title="Only owners can change the appearance." />
      </Page>
    );
  if (!look.data) return <PendingPage query={look} what="appearance" title="Appearance" />;
  return (
    <Page
      narrow
      title="Appearance"
      subtitle="Shown to everyone, including on the sign-in page"
      actions={<DocsLink to="operating#appearance">Appearance</DocsLink>}
    >
      <Settings look={look.data} />
    </Page>
  );
}

function Settings({ look }: { look: Appearance }) {
  const client = useQueryClient();
  const [name, setName] = useState(look.application_name);
  const [logo, setLogo] = useState(look.logo_url);
  const [banners, setBanners] = useState<Banner[]>(look.announcement_banners);
  const set = (i: number, change: Partial<Banner>) =>
    setBanners(banners.map((b, j) => (i === j ? { ...b, ...change } : b)));
  const save = useMutation({
    mutationFn: () =>
      send("PUT appearance", { body: { application_name: name, logo_url: logo, announcement_banners: banners } }),
    onSuccess: (next) => client.setQueryData(queries.appearance().queryKey, next),
  });
  return (
    <Card>
      <Form request={save} submit="Save" done="Saved">
        <TextField
          label="Application name"
          name="application_name"
          value={name}
          onChange={setName}
          autoComplete="off"
        />
        <TextField
          label="Logo"
          name="logo_url"
          placeholder="/icon/docker.svg"
          hint="Enter a path on this server, such as /icon/docker.svg. Images of other hosts are blocked."
          value={logo}
          onChange={setLogo}
          autoComplete="off"
        />
        {banners.map((b, i) => (
          <fieldset key={i} className="flex flex-col gap-3 rounded-md border border-line p-3">
            <legend className="px-1 font-medium">{`Banner ${i + 1}`}</legend>
            <Banners of={[b]} />
            <TextField
              label="Message"
              name="announcement_banners"
              value={b.message ?? ""}
              onChange={(message) => set(i, { message })}
              autoComplete="off"
            />
            <div className="flex flex-wrap items-center gap-4">
              <label className="flex items-center gap-2">
                Color
                <input
                  type="color"
                  value={b.background_color ?? "#4353c9"}
                  onChange={(e) => set(i, { background_color: e.target.value })}
                />
              </label>
              <Checkbox label="Show it" checked={b.enabled} onChange={(enabled) => set(i, { enabled })} />
              <IconButton
                label={`Remove banner ${i + 1}`}
                onClick={() => setBanners(banners.filter((_, j) => j !== i))}
              >
                <Trash2 />
              </IconButton>
            </div>
          </fieldset>
        ))}
        {banners.length < most && (
          <div>
            <Button onClick={() => setBanners([...banners, { enabled: true, message: "" }])}>
              <Plus /> Add banner
            </Button>
          </div>
        )}
      </Form>
    </Card>
  );
}
