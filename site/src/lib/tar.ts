// Archives in the browser: a folder that is uploaded becomes a tar, and a template's tar is shown as files.

export interface File {
  path: string;
  content: Uint8Array<ArrayBuffer>;
  mode?: number; // its permissions, 0644 unless they are known
}

const block = 512;

// Files that belong to a computer and not to a template are skipped, as the command line does. Terraform's lock file is
// kept.
const unwanted = /(^|\/)(\.terraform|\.git|\.hg|\.svn|\.DS_Store|crash\.log)(\/|$)|\.tfstate(\.|$)/;

export const wanted = (path: string) => !unwanted.test(path);

export function writeTar(files: File[]): Uint8Array<ArrayBuffer> {
  const size = files.reduce((sum, f) => sum + block + Math.ceil(f.content.length / block) * block, 2 * block);
  const out = new Uint8Array(size);
  let at = 0;
  for (const file of files) {
    header(out.subarray(at, at + block), file);
    out.set(file.content, at + block);
    at += block + Math.ceil(file.content.length / block) * block;
  }
  return out;
}

function header(out: Uint8Array, file: File) {
  const encoder = new TextEncoder();
  const put = (text: string, at: number) => out.set(encoder.encode(text), at);
  const octal = (n: number, at: number, length: number) => put(n.toString(8).padStart(length - 1, "0"), at);
  const [name, prefix] = split(file.path);
  put(name, 0);
  octal(file.mode ?? 0o644, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(file.content.length, 124, 12);
  octal(0, 136, 12); // the same files make the same archive
  put("        ", 148);
  put("0", 156);
  put("ustar\x0000", 257);
  put(prefix, 345);
  octal(
    out.reduce((sum, b) => sum + b, 0),
    148,
    7,
  );
}

// split divides a path for the header: at most 155 bytes of folder and 100 of name.
function split(path: string): [string, string] {
  const length = (text: string) => new TextEncoder().encode(text).length;
  if (length(path) <= 100) return [path, ""];
  for (let i = path.indexOf("/"); i >= 0; i = path.indexOf("/", i + 1)) {
    const [name, prefix] = [path.slice(i + 1), path.slice(0, i)];
    if (length(name) <= 100 && length(prefix) <= 155) return [name, prefix];
  }
  throw new Error(`The path ${path} is too long for an archive.`);
}

export interface Archive {
  files: File[]; // the regular ones, by path
  links: string[]; // the paths of links
}

// readTar lists what is in an archive. It throws if the bytes are not a tar archive.
export function readTar(data: Uint8Array<ArrayBuffer>): Archive {
  const files: File[] = [];
  const links: string[] = [];
  const decoder = new TextDecoder();
  const text = (from: number, length: number) =>
    decoder.decode(data.subarray(from, from + length)).replace(/\0.*$/s, "");
  let long = "";
  let at = 0;
  while (at + block <= data.length && data[at] !== 0) {
    const size = parseInt(text(at + 124, 12).trim() || "0", 8);
    if (!Number.isFinite(size) || size < 0 || at + block + size > data.length)
      throw new Error("The template's archive is damaged.");
    const content = data.subarray(at + block, at + block + size);
    const kind = text(at + 156, 1);
    const prefix = text(at + 257, 5) === "ustar" ? text(at + 345, 155) : "";
    const path = long || (prefix ? `${prefix}/` : "") + text(at, 100);
    long = "";
    if (kind === "L") long = decoder.decode(content).replace(/\0.*$/s, "");
    else if (kind === "x") long = /\d+ path=([^\n]*)\n/.exec(decoder.decode(content))?.[1] ?? "";
    else if (kind === "" || kind === "0") {
      const mode = parseInt(text(at + 100, 8).trim(), 8) & 0o777;
      files.push({ path: path.replace(/^\.\//, ""), content, ...(mode && { mode }) });
    } else if (kind === "1" || kind === "2") links.push(path);
    at += block + Math.ceil(size / block) * block;
  }
  if (at > data.length || (at < data.length && at + block > data.length))
    throw new Error("The template's archive is damaged.");
  return { files: files.sort((a, b) => a.path.localeCompare(b.path)), links };
}
