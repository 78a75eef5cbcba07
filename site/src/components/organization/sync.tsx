// The forms of sync: from which claims of the identity provider organizations, groups and roles follow.
import { useMutation, useQuery } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import { type ReactNode, useId, useRef, useState } from "react";
import { queries } from "~/api/queries";
import { groupSync, organizationSync, roleSync, type SyncPlace } from "~/api/sync";
import type { GroupSyncSettings, Organization, OrganizationSyncSettings, RoleSyncSettings } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox, Form, Input, Select, TextField } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Pending } from "~/components/ui/pending";
import { type MappingRow, mappingOf, nothing, rowsOf } from "~/lib/mapping";

// Target is something that a value of a claim can give.
interface Target {
  value: string;
  name: string;
}

interface Settings {
  field: string;
  mapping: Record<string, string[]>;
}

// useSync keeps what a form says about settings, and saves all of them at once.
function useSync<T extends Settings>(at: SyncPlace<T>, stored: T) {
  const [edited, set] = useState(stored);
  const [rows, setRows] = useState(() => rowsOf(stored.mapping));
  const save = useMutation({
    mutationFn: () => at.save({ ...edited, mapping: mappingOf(rows) }),
  });
  return { at, edited, change: (some: Partial<T>) => set((old) => ({ ...old, ...some })), rows, setRows, save };
}

interface ClaimFormProps {
  sync: {
    at: Pick<SyncPlace<never>, "fields" | "values">;
    edited: Settings;
    change: (some: Partial<Settings>) => void;
    rows: MappingRow[];
    setRows: (rows: MappingRow[]) => void;
    save: { mutate: () => void; isPending: boolean; isSuccess: boolean; error: unknown };
  };
  label: string; // what a value gives
  targets: Target[];
  unmapped: string; // what a value without a row means
  offersNothing?: boolean;
  children?: ReactNode;
}

// ClaimForm is what the forms have in common: the claim and the mapping of its values.
function ClaimForm({ sync, label, targets, unmapped, offersNothing, children }: ClaimFormProps) {
  const { at, edited, change, rows, setRows, save } = sync;
  const id = useId();
  const fields = useQuery(at.fields());
  const known = fields.data?.includes(edited.field) ?? false;
  const values = useQuery({ ...at.values(edited.field), enabled: known });
  return (
    <Form aria-label={`${label} sync`} request={save} submit="Save" done="Saved" className="max-w-3xl">
      <ErrorNote error={fields.error ?? values.error} />
      <div className="max-w-md">
        <TextField
          label="Claim"
          name="field"
          value={edited.field}
          onChange={(field) => change({ field })}
          list={`${id}-fields`}
          autoComplete="off"
          spellCheck={false}
          placeholder="groups"
          hint="Leave empty to switch sync off."
        />
      </div>
      <Options id={`${id}-fields`} of={fields.data} />
      {children}
      <Options id={`${id}-values`} of={known ? values.data : undefined} />
      <MappingRows
        rows={rows}
        onChange={setRows}
        label={label}
        targets={targets}
        suggestions={`${id}-values`}
        unmapped={unmapped}
        offersNothing={offersNothing ?? false}
      />
    </Form>
  );
}

const Options = ({ id, of = [] }: { id: string; of?: string[] | undefined }) => (
  <datalist id={id}>
    {of.map((value) => (
      <option key={value} value={value} />
    ))}
  </datalist>
);

interface MappingRowsProps {
  rows: MappingRow[];
  onChange: (rows: MappingRow[]) => void;
  label: string;
  targets: Target[];
  suggestions: string; // the id of a list
  unmapped: string;
  offersNothing: boolean;
}

function MappingRows({ rows, onChange, label, targets, suggestions, unmapped, offersNothing }: MappingRowsProps) {
  const next = useRef(rows.length);
  const set = (id: number, some: Partial<MappingRow>) =>
    onChange(rows.map((row) => (row.id === id ? { ...row, ...some } : row)));
  return (
    <fieldset className="flex min-w-0 flex-col gap-2">
      <legend className="mb-1 font-medium">Mapping</legend>
      <p className="text-[13px] text-muted">{unmapped}</p>
      {rows.map((row, i) => (
        <div key={row.id} className="flex items-center gap-2">
          <Input
            aria-label={`Value ${i + 1}`}
            placeholder="Value of the claim"
            required
            list={suggestions}
            autoComplete="off"
            spellCheck={false}
            value={row.given}
            onChange={(e) => set(row.id, { given: e.target.value })}
          />
          <span aria-hidden className="text-muted">
            →
          </span>
          <Select
            aria-label={`${label} for value ${i + 1}`}
            required
            value={row.gets}
            onChange={(e) => set(row.id, { gets: e.target.value })}
          >
            <option value="" disabled>
              {label}…
            </option>
            {targets.map((t) => (
              <option key={t.value} value={t.value}>
                {t.name}
              </option>
            ))}
            {row.gets && row.gets !== nothing && !targets.some((t) => t.value === row.gets) && (
              <option value={row.gets}>{row.gets}</option>
            )}
            {(offersNothing || row.gets === nothing) && <option value={nothing}>Nothing</option>}
          </Select>
          <IconButton
            label={`Remove value ${i + 1}`}
            onClick={() => onChange(rows.filter((other) => other.id !== row.id))}
            className="shrink-0"
          >
            <X />
          </IconButton>
        </div>
      ))}
      <div>
        <Button small onClick={() => onChange([...rows, { id: next.current++, given: "", gets: "" }])}>
          <Plus /> Add value
        </Button>
      </div>
    </fieldset>
  );
}

// OrganizationSyncForms are the forms of group sync and role sync in an organization.
export function OrganizationSyncForms({ organization: o }: { organization: Organization }) {
  const groups = useQuery(groupSync(o.id).settings());
  const roles = useQuery(roleSync(o.id).settings());
  return (
    <>
      <p className="max-w-3xl text-muted">
        The claims of the identity provider can decide in which groups members are and which roles they have here. Users
        get what their claims give at their next sign-in or when their tokens are renewed.{" "}
        <DocsLink to="sign-in#groups-roles-and-organizations-from-claims">Sync from claims</DocsLink>
      </p>
      <Card title="Groups">
        <Pending query={groups} what="settings" />
        {groups.data && <GroupSync organization={o} stored={groups.data} />}
      </Card>
      <Card title="Roles">
        <Pending query={roles} what="settings" />
        {roles.data && <RoleSync organization={o} stored={roles.data} />}
      </Card>
      <p className="max-w-3xl text-[13px] text-muted">
        Only options of the server set roles in the deployment (CODER_OIDC_USER_ROLE_FIELD) and the groups that may sign
        in (CODER_OIDC_ALLOWED_GROUPS).
        {o.is_default &&
          " Group sync of this organization follows CODER_OIDC_GROUP_FIELD and the options beside it until you save."}
      </p>
    </>
  );
}

function GroupSync({ organization: o, stored }: { organization: Organization; stored: GroupSyncSettings }) {
  const sync = useSync(groupSync(o.id), stored);
  const groups = useQuery(queries.groups(o.name));
  const { edited, change } = sync;
  const renamed = Object.entries(stored.legacy_group_name_mapping ?? {});
  return (
    <>
      <ErrorNote error={groups.error} />
      <ClaimForm
        sync={sync}
        label="Group"
        offersNothing
        targets={(groups.data ?? [])
          .filter((g) => g.id !== o.id) // Everyone, which contains all members anyway
          .map((g) => ({ value: g.id, name: g.display_name || g.name }))}
        unmapped="A value that is not listed is the name of a group."
      >
        <div className="max-w-md">
          <TextField
            label="Filter"
            name="regex_filter"
            value={edited.regex_filter ?? ""}
            onChange={(text) => change({ regex_filter: text || null })}
            autoComplete="off"
            spellCheck={false}
            placeholder="^eng-"
            hint="A regular expression (RE2). Values without a mapping count only if it matches."
          />
        </div>
        <Checkbox
          label="Create missing groups"
          hint="At most 100 in one sign-in."
          checked={edited.auto_create_missing_groups}
          onChange={(auto_create_missing_groups) => change({ auto_create_missing_groups })}
        />
        {renamed.length > 0 && (
          <div className="text-[13px] text-muted">
            <p>
              These values are renamed first. They come from CODER_OIDC_GROUP_MAPPING or the command line, and cannot be
              changed here:
            </p>
            <ul className="font-mono break-words">
              {renamed.map(([from, to]) => (
                <li key={from}>
                  {from} → {to}
                </li>
              ))}
            </ul>
          </div>
        )}
      </ClaimForm>
    </>
  );
}

function RoleSync({ organization: o, stored }: { organization: Organization; stored: RoleSyncSettings }) {
  const sync = useSync(roleSync(o.id), stored);
  const roles = useQuery(queries.roles(o.name));
  return (
    <>
      <ErrorNote error={roles.error} />
      <ClaimForm
        sync={sync}
        label="Role"
        offersNothing
        targets={(roles.data ?? [])
          .filter((r) => r.assignable)
          .map((r) => ({ value: r.name, name: r.display_name || r.name }))}
        unmapped="A value that is not listed is the name of a role."
      />
    </>
  );
}

// DeploymentSyncForm is the form of organization sync.
export function DeploymentSyncForm() {
  const settings = useQuery(organizationSync.settings());
  return (
    <Card title="Organizations">
      <Pending query={settings} what="settings" />
      {settings.data && <OrganizationSync stored={settings.data} />}
    </Card>
  );
}

function OrganizationSync({ stored }: { stored: OrganizationSyncSettings }) {
  const sync = useSync(organizationSync, stored);
  const organizations = useQuery(queries.organizations());
  return (
    <>
      <ErrorNote error={organizations.error} />
      <ClaimForm
        sync={sync}
        label="Organization"
        targets={(organizations.data ?? []).map((o) => ({ value: o.id, name: o.display_name || o.name }))}
        unmapped="A value that is not listed gives nothing."
      >
        <Checkbox
          label="Assign the default organization to all users"
          checked={sync.edited.organization_assign_default}
          onChange={(organization_assign_default) => sync.change({ organization_assign_default })}
        />
      </ClaimForm>
    </>
  );
}
