// Paths and lists of a workspace's files.
import type { AgentFile } from "~/api/types";

// below is the path of an entry of a folder.
export const below = (folder: string, name: string) => (folder.endsWith("/") ? folder + name : `${folder}/${name}`);

// crumbsOf has the folders on the way to a path, the root first.
export function crumbsOf(path: string): { name: string; path: string }[] {
  if (!path.startsWith("/")) return [];
  const crumbs = [{ name: "/", path: "/" }];
  for (const name of path.split("/").filter(Boolean)) crumbs.push({ name, path: below(crumbs.at(-1)!.path, name) });
  return crumbs;
}

export type SortBy = "name" | "size" | "modified";

// sorted has folders first, then by name, or the largest or latest first.
export function sorted(files: readonly AgentFile[], by: SortBy): AgentFile[] {
  const folder = (f: AgentFile) => Number((f.link_kind ?? f.kind) === "folder");
  const order = {
    name: () => 0,
    size: (a: AgentFile, b: AgentFile) => b.size - a.size,
    modified: (a: AgentFile, b: AgentFile) => Date.parse(b.modified_at) - Date.parse(a.modified_at),
  }[by];
  return [...files].sort(
    (a, b) => folder(b) - folder(a) || order(a, b) || a.name.localeCompare(b.name, "en", { numeric: true }),
  );
}

// isPicture reports whether the server lets browsers show a file as a picture. SVG files are texts: they can contain
// scripts.
export const isPicture = (name: string) => /\.(?:png|jpe?g|gif|webp|avif|bmp)$/i.test(name);

// nameError says why a file cannot have a name; "" if it can.
export function nameError(name: string): string {
  if (name === "") return "";
  if (name.includes("/")) return "A name has no slash.";
  return name === "." || name === ".." ? "Choose another name." : "";
}
