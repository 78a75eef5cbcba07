// What custom roles can permit, in the words of the API and in those of the pages.
import type { AuthorizationCheck, Permission } from "~/api/types";

// Kind is a kind of object with the actions that roles can permit on it.
interface Kind {
  type: string; // as the API calls it
  label: string;
  actions: [action: string, label: string][];
}

export const kinds: Kind[] = [
  {
    type: "template",
    label: "Templates",
    actions: [
      ["read", "See all"],
      ["use", "Create workspaces from all"],
      ["create", "Create"],
      ["update", "Change and push versions"],
      ["share", "Share"],
      ["delete", "Delete"],
    ],
  },
  {
    type: "workspace",
    label: "Workspaces of all members",
    actions: [
      ["read", "See"],
      ["create", "Create for others"],
      ["start", "Start and stop"],
      ["update", "Change settings"],
      ["withdraw", "Withdraw sharing"],
      ["transfer", "Transfer to other users"],
      ["delete", "Delete"],
    ],
  },
  {
    type: "organization_member",
    label: "Members",
    actions: [
      ["read", "See"],
      ["create", "Add"],
      ["update", "Change roles"],
      ["delete", "Remove"],
    ],
  },
  {
    type: "group",
    label: "Groups",
    actions: [
      ["read", "See"],
      ["create", "Create"],
      ["update", "Change and choose members"],
      ["delete", "Delete"],
    ],
  },
  {
    type: "assign_org_role",
    label: "Custom roles",
    actions: [
      ["read", "See"],
      ["create", "Create"],
      ["update", "Change"],
      ["delete", "Delete"],
    ],
  },
  { type: "audit_log", label: "Audit log", actions: [["read", "See"]] },
  { type: "connection_log", label: "Connection log", actions: [["read", "See"]] },
  {
    type: "provisioner_daemon",
    label: "Provisioners and their keys",
    actions: [
      ["read", "See"],
      ["create", "Connect"],
      ["delete", "Remove"],
    ],
  },
  {
    type: "provisioner_jobs",
    label: "Provisioner jobs",
    actions: [
      ["read", "See"],
      ["update", "Cancel"],
    ],
  },
  {
    type: "organization",
    label: "The organization",
    actions: [
      ["read", "See"],
      ["update", "Change settings"],
      ["delete", "Delete"],
    ],
  },
];

// Words of the API that mean the same as others. Pages show only the others.
export const same: Record<string, string> = {
  "workspace.stop": "workspace.start",
  "group_member.read": "group.read",
  "assign_org_role.assign": "organization_member.update",
  "assign_org_role.unassign": "organization_member.update",
};

const key = (type: string, action: string) => `${type}.${action}`;

// keysOf returns the keys of permissions, such as "template.create".
export const keysOf = (permissions: Permission[]): ReadonlySet<string> =>
  new Set(permissions.map((p) => key(p.resource_type, p.action)).map((k) => same[k] ?? k));

// permissionsOf is the reverse of keysOf.
export const permissionsOf = (keys: Iterable<string>): Permission[] =>
  [...keys].map((k) => {
    const [type = "", action = ""] = k.split(".");
    return { negate: false, resource_type: type, action };
  });

// described lists what permissions allow: each kind with its actions in words.
export const described = (keys: ReadonlySet<string>): [string, string][] =>
  kinds.flatMap(({ type, label, actions }) => {
    const allowed = actions.filter(([action]) => keys.has(key(type, action))).map(([, words]) => words);
    return allowed.length === 0 ? [] : [[label, inSentence(allowed)] as [string, string]];
  });

// Only the first word of a list has a capital.
const inSentence = (words: string[]) => words.map((w, i) => (i === 0 ? w : w.toLowerCase())).join(", ");

// summary names the kinds of what permissions allow.
export const summary = (permissions: Permission[]): string =>
  inSentence(described(keysOf(permissions)).map(([kind]) => kind)) || "No permissions";

// checksIn asks for every permission whether the user has it in an organization.
export const checksIn = (organization: string): Record<string, AuthorizationCheck> =>
  Object.fromEntries(
    kinds.flatMap(({ type, actions }) =>
      actions.map(([action]) => [
        key(type, action),
        { action, object: { resource_type: type, organization_id: organization } },
      ]),
    ),
  );
