// The parts of HCL, Terraform's language, that have colours of their own. The same rules colour the editor, a version's
// files and its changes. A file is read line by line: State is what a line leaves open for the next one.

export type Kind = "" | "comment" | "string" | "literal" | "keyword" | "block" | "name" | "function";

export interface Piece {
  text: string;
  kind: Kind;
}

// What is open, the innermost last. "${" is an interpolation, with the braces that are open in it.
type Open = { in: '"' | "/*" } | { in: "<<"; end: string } | { in: "${"; braces: number };

export interface State {
  open: readonly Open[];
}

export const start = (): State => ({ open: [] });

// isHCL reports whether a file has the language. Terraform's JSON has not.
export const isHCL = (path: string) => /\.(?:tf|tfvars|hcl|tofu)$/.test(path);

const space = /\s+/y;
const comment = /(?:#|\/\/).*/y;
const number = /\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const heredoc = /<<-?([\p{L}_][\p{L}\p{N}_-]*)/uy;
const word = /[\p{L}_][\p{L}\p{N}_-]*/uy;
const header = /\s*(?:"[^"]*"\s*|[\p{L}_][\p{L}\p{N}_-]*\s+)*\{/uy; // of a block, after its type
const assigned = /\s*=(?![=>])/y;
const called = /\(/y;
const member = /\./y;
const quoted = /(?:\\.|\$\$\{|%%\{|[^"\\$%]|[$%](?!\{)|\\$)+/uy;
const text = /(?:\$\$\{|%%\{|[^$%]|[$%](?!\{))+/uy;

const literals = new Set(["true", "false", "null"]);
const keywords = new Set(["for", "in", "if", "else", "endif", "endfor"]);
const roots = new Set(["var", "local", "data", "module", "each", "self", "count", "path", "terraform"]);

// matched is where a pattern that begins at a position ends; -1 if it does not match there.
function matched(pattern: RegExp, line: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(line) ? pattern.lastIndex : -1;
}

// scan reads the next piece of a line, which is longer than at, and returns its end. It changes state.
export function scan(line: string, at: number, state: State): { end: number; kind: Kind } {
  // A quoted string ends with its line: one that does not is being typed.
  if (at === 0 && state.open.at(-1)?.in === '"') state.open = state.open.slice(0, -1);
  const inside = state.open.at(-1);
  switch (inside?.in) {
    case "/*":
      return endOfComment(line, at, state);
    case '"':
      if (line[at] === '"') return leave(state, at + 1, "string");
      return interpolation(line, at, state) ?? { end: Math.max(matched(quoted, line, at), at + 1), kind: "string" };
    case "<<":
      if (at === 0 && line.trim() === inside.end) return leave(state, line.length, "string");
      return interpolation(line, at, state) ?? { end: Math.max(matched(text, line, at), at + 1), kind: "string" };
    default:
      return code(line, at, state);
  }
}

function enter(state: State, open: Open) {
  state.open = [...state.open, open];
}

function leave(state: State, end: number, kind: Kind) {
  state.open = state.open.slice(0, -1);
  return { end, kind };
}

function interpolation(line: string, at: number, state: State) {
  if (!line.startsWith("${", at) && !line.startsWith("%{", at)) return undefined;
  enter(state, { in: "${", braces: 0 });
  return { end: at + 2, kind: "keyword" as const };
}

function endOfComment(line: string, at: number, state: State): { end: number; kind: Kind } {
  const end = line.indexOf("*/", at);
  return end < 0 ? { end: line.length, kind: "comment" } : leave(state, end + 2, "comment");
}

function code(line: string, at: number, state: State): { end: number; kind: Kind } {
  let end = matched(space, line, at);
  if (end > 0) return { end, kind: "" };
  if ((end = matched(comment, line, at)) > 0) return { end, kind: "comment" };
  if (line.startsWith("/*", at)) {
    enter(state, { in: "/*" });
    return endOfComment(line, at + 2, state);
  }
  if (line[at] === '"') {
    enter(state, { in: '"' });
    return { end: at + 1, kind: "string" };
  }
  heredoc.lastIndex = at;
  const begun = heredoc.exec(line);
  if (begun) {
    enter(state, { in: "<<", end: begun[1]! });
    return { end: line.length, kind: "string" };
  }
  if ((end = matched(number, line, at)) > 0) return { end, kind: "literal" };
  if ((end = matched(word, line, at)) > 0) return { end, kind: kindOf(line, at, end) };
  const inside = state.open.at(-1);
  if (inside?.in === "${") {
    if (line[at] === "}" && inside.braces === 0) return leave(state, at + 1, "keyword");
    const change = line[at] === "{" ? 1 : line[at] === "}" ? -1 : 0;
    if (change) state.open = [...state.open.slice(0, -1), { ...inside, braces: inside.braces + change }];
  }
  return { end: at + 1, kind: "" };
}

function kindOf(line: string, at: number, end: number): Kind {
  const found = line.slice(at, end);
  if (matched(assigned, line, end) > 0) return "name";
  if (line.slice(0, at).trim() === "" && matched(header, line, end) > 0) return "block";
  if (matched(called, line, end) > 0) return "function";
  if (line[at - 1] === ".") return "";
  if (literals.has(found)) return "literal";
  if (keywords.has(found) || (roots.has(found) && matched(member, line, end) > 0)) return "keyword";
  return "";
}

// piecesOf reads one line, and changes state to what the line leaves open.
export function piecesOf(line: string, state: State): Piece[] {
  const out: Piece[] = [];
  for (let at = 0; at < line.length;) {
    const { end, kind } = scan(line, at, state);
    const last = out.at(-1);
    if (last?.kind === kind) last.text += line.slice(at, end);
    else out.push({ text: line.slice(at, end), kind });
    at = end;
  }
  return out;
}

const longest = 2000; // characters of a line that gets colours

// coloured is the pieces of a file's lines. Files of other kinds, and very long lines, have no colours.
export function coloured(path: string, lines: string[]): Piece[][] {
  const state = start();
  const plain = !isHCL(path);
  return lines.map((line) => (plain || line.length > longest ? [{ text: line, kind: "" }] : piecesOf(line, state)));
}

const width = (line: string) => /^\s*/.exec(line)![0].length;

// indentOf is how many columns a line begins with: those of the line before it, which is not empty, one step more after
// an opening bracket, and one step less before a closing one. state is what the line before leaves open.
export function indentOf(before: string, line: string, state: State, step: number): number {
  const inside = state.open.at(-1)?.in;
  if (inside === "<<" || inside === "/*") return width(before);
  let open = 0;
  for (const { text, kind } of piecesOf(before, start())) {
    if (kind) continue;
    for (const c of text) {
      if ("{[(".includes(c)) open++;
      else if ("}])".includes(c) && open > 0) open--;
    }
  }
  const closes = /^\s*[}\])]/.test(line);
  return Math.max(0, width(before) + (open > 0 ? step : 0) - (closes ? step : 0));
}
