// A link and a badge that create a workspace of a template, to put in a README.
import { useState } from "react";
import type { Template } from "~/api/types";
import { Card } from "~/components/ui/card";
import { CopyLine } from "~/components/ui/copy";
import { Checkbox, TextField } from "~/components/ui/form";
import { useMe } from "~/components/ui/user";
import { ParameterForm, useParameters } from "~/components/workspace/parameters";
import { htmlBadge, markdownBadge, openLink } from "~/lib/open-link";
import { useTemplateRef } from "~/lib/template-ref";

export default function TemplateEmbed({ template: t }: { template: Template }) {
  const me = useMe();
  const ref = useTemplateRef()(t);
  const form = useParameters(t.active_version_id, me.id);
  const [name, setName] = useState("");
  const [auto, setAuto] = useState(false);
  const { origin } = location;
  const link = openLink(origin, { template: ref, name: name.trim(), auto, values: form.inputs });
  return (
    <div className="grid items-start gap-4 lg:grid-cols-2">
      <Card title="Link and badge">
        <div className="flex flex-col gap-4">
          <p className="text-muted">
            Put these in a README: they lead to the form of a new workspace, with what you choose here filled in.
          </p>
          <TextField
            label="Name of the workspace"
            hint="Empty: the user chooses one."
            autoComplete="off"
            spellCheck={false}
            maxLength={32}
            value={name}
            onChange={setName}
          />
          <Checkbox
            label="Ask only whether to create it, with a made-up name if there is none"
            checked={auto}
            onChange={setAuto}
          />
          <img src="/open-in-coder.svg" alt="Open in Coder" width={140} height={32} />
          {[
            { label: "Markdown", text: markdownBadge(origin, link) },
            { label: "HTML", text: htmlBadge(origin, link) },
            { label: "Link", text: link },
          ].map((one) => (
            <div key={one.label} className="flex flex-col gap-1">
              <span className="font-medium">{one.label}</span>
              <CopyLine {...one} />
            </div>
          ))}
        </div>
      </Card>
      {form.parameters?.length !== 0 && (
        <Card title="Parameters">
          <div className="flex flex-col gap-4">
            <p className="text-muted">The link has those that you change, without masking: choose no secrets.</p>
            <ParameterForm form={form} />
          </div>
        </Card>
      )}
    </div>
  );
}
