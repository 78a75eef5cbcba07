// Folders that users drop on a page or choose in a dialog.

// Item is a file of a folder by its path, which begins with the folder's own name, or an empty folder.
export interface Item {
  path: string;
  file?: File;
}

// mostItems bounds a folder that is uploaded to a workspace: each item is a request.
export const mostItems = 10_000;

const mostDepth = 64; // as the server allows

// read returns what is in a dropped folder, and stops when that is more than most. Names for which wanted is false are
// left out.
export async function read(
  entry: FileSystemEntry,
  { most = Infinity, wanted = () => true }: { most?: number; wanted?: (path: string) => boolean } = {},
): Promise<Item[]> {
  let found = 0;
  const walk = async (e: FileSystemEntry, above: string): Promise<Item[]> => {
    const path = above + e.name;
    if (e.isFile) {
      if (++found > most) throw new Error(tooMany(most));
      return [{ path, file: await new Promise<File>((yes, no) => (e as FileSystemFileEntry).file(yes, no)) }];
    }
    const reader = (e as FileSystemDirectoryEntry).createReader();
    const entries: FileSystemEntry[] = [];
    // A reader returns a large folder in parts.
    for (;;) {
      const some = await new Promise<FileSystemEntry[]>((yes, no) => reader.readEntries(yes, no));
      if (some.length === 0) break;
      entries.push(...some);
      if (found + entries.length > most) throw new Error(tooMany(most));
    }
    const kept = entries.filter((e) => wanted(`${path}/${e.name}`));
    if (kept.length === 0) {
      found++;
      return [{ path }];
    }
    return (await Promise.all(kept.map((e) => walk(e, `${path}/`)))).flat();
  };
  return walk(entry, "");
}

// tooMany says that a folder cannot be uploaded.
export const tooMany = (most: number) =>
  `The folder has more than ${most.toLocaleString("en")} files. Copy it with scp -r or rsync.`;

// itemError says why an item cannot be uploaded under its path, as the server would; "" if it can.
export function itemError(path: string): string {
  const names = path.split("/");
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f-\u009f\\]/.test(path)) return "The name has a control character or a backslash.";
  if (names.some((n) => n === "" || n === "." || n === "..")) return "The path would lead out of the folder.";
  return names.length > mostDepth ? `The file is deeper than ${mostDepth - 1} folders.` : "";
}
