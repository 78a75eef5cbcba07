import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { TerminalFont, UserAppearance } from "~/api/types";
import { Card } from "~/components/ui/card";
import { Field, Form, Select } from "~/components/ui/form";
import { Pending } from "~/components/ui/pending";
import { setTheme, type Theme, useTheme } from "~/components/ui/theme";

const themes: Record<Theme, string> = { system: "System", light: "Light", dark: "Dark" };
const fonts: Record<TerminalFont, string> = {
  "": "Default",
  "fira-code": "Fira Code",
  "ibm-plex-mono": "IBM Plex Mono",
  "jetbrains-mono": "JetBrains Mono",
  "source-code-pro": "Source Code Pro",
};

// Look is what the user has chosen for the dashboard in every browser.
export function Look() {
  const look = useQuery(queries.userAppearance());
  return (
    <Card title="Appearance">
      <Pending query={look} what="appearance" />
      {look.data && <Edit look={look.data} />}
    </Card>
  );
}

function Edit({ look }: { look: UserAppearance }) {
  const client = useQueryClient();
  const theme = useTheme();
  const [font, setFont] = useState(look.terminal_font);
  const save = useMutation({
    mutationFn: () => send("PUT users/{user}/appearance", { user: "me", body: { terminal_font: font } }),
    onSuccess: (next) => client.setQueryData(queries.userAppearance().queryKey, next),
  });
  return (
    <Form request={save} submit="Save" done="Saved">
      <Field label="Theme" hint="Changes at once.">
        {(props) => (
          <Select {...props} value={theme} onChange={(e) => setTheme(e.target.value as Theme)}>
            {Object.entries(themes).map(([key, label]) => (
              <option key={key} value={key}>
                {label}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Field label="Terminal font" hint="Used by web terminals if your computer has it.">
        {(props) => (
          <Select {...props} value={font} onChange={(e) => setFont(e.target.value as TerminalFont)}>
            {Object.entries(fonts).map(([key, label]) => (
              <option key={key} value={key}>
                {label}
              </option>
            ))}
          </Select>
        )}
      </Field>
    </Form>
  );
}
