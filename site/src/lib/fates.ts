// What an update does to the resources of a workspace, as far as their names tell.

// replaced: it does not outlive a stop, so the update ends it and makes another one.
export type Fate = "created" | "deleted" | "replaced" | "kept";

interface Resource {
  type: string;
  name: string;
  icon: string;
  hide: boolean;
}

export interface Fated {
  type: string;
  name: string;
  icon: string;
  fate: Fate;
  count: number; // of instances: a resource with count or for_each has several of one name
}

const keyOf = ({ type, name }: Resource) => `${type}.${name}`;

// fates compares the resources that a workspace has with those that the new version makes. lasting are those that
// outlive a stop; undefined if the workspace is stopped, so that all that it has do.
export function fates(has: Resource[], makes: Resource[], lasting: Resource[] | undefined): Fated[] {
  const kept = lasting && new Set(lasting.map(keyOf));
  const found = new Map<string, { of: Resource; has: number; makes: number }>();
  const count = (list: Resource[], side: "has" | "makes") => {
    for (const of of list) {
      if (of.hide) continue;
      const entry = found.get(keyOf(of)) ?? { of, has: 0, makes: 0 };
      entry[side]++;
      found.set(keyOf(of), entry);
    }
  };
  count(makes, "makes");
  count(has, "has");
  return [...found].flatMap(
    ([
      key,
      {
        of: { type, name, icon },
        ...n
      },
    ]) => {
      const both = Math.min(n.has, n.makes);
      const parts: [Fate, number][] = [
        ["created", n.makes - both],
        [kept && !kept.has(key) ? "replaced" : "kept", both],
        ["deleted", n.has - both],
      ];
      return parts.filter(([, count]) => count > 0).map(([fate, count]) => ({ type, name, icon, fate, count }));
    },
  );
}
