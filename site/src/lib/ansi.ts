// Colours in logs: a line of terminal output becomes pieces of styled text. Other control sequences are dropped.

export interface Piece {
  text: string;
  look: string; // class names
}

const colours = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

// One control sequence: colours (CSI … m), any other CSI, an OSC with its end (titles, links), or a single escape.
// eslint-disable-next-line no-control-regex
const sequence = /\x1b\[([0-9;:]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]?|[\x00-\x08\x0b-\x1a\x7f]/g;

interface State {
  colour: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

export function ansi(line: string): Piece[] {
  // A progress bar repaints its line. Show the last version, as a terminal would.
  const painted = line.endsWith("\r") ? line.slice(0, -1) : line;
  const text = painted.slice(painted.lastIndexOf("\r") + 1);
  if (!text.includes("\x1b")) return text === "" ? [] : [{ text: text.replace(sequence, ""), look: "" }];
  const pieces: Piece[] = [];
  const state: State = { colour: "", bold: false, dim: false, italic: false, underline: false };
  let from = 0;
  const add = (to: number) => {
    if (to > from) pieces.push({ text: text.slice(from, to), look: look(state) });
  };
  for (const match of text.matchAll(sequence)) {
    add(match.index);
    from = match.index + match[0].length;
    if (match[2] === "m") apply(state, (match[1] ?? "").split(/[;:]/).map(Number));
  }
  add(text.length);
  return pieces;
}

function apply(s: State, codes: number[]) {
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) Object.assign(s, { colour: "", bold: false, dim: false, italic: false, underline: false });
    else if (code === 1) s.bold = true;
    else if (code === 2) s.dim = true;
    else if (code === 3) s.italic = true;
    else if (code === 4) s.underline = true;
    else if (code === 22) s.bold = s.dim = false;
    else if (code === 23) s.italic = false;
    else if (code === 24) s.underline = false;
    else if (code >= 30 && code <= 37) s.colour = colours[code - 30] ?? "";
    else if (code >= 90 && code <= 97) s.colour = colours[code - 90] ?? "";
    else if (code === 39) s.colour = "";
    else if (code === 38 || code === 48) {
      // Of the 256 colours only the first 16 have an equivalent here; others and true colours stay plain.
      if (codes[i + 1] === 5) {
        const n = codes[i + 2] ?? 0;
        if (code === 38) s.colour = n < 16 ? (colours[n % 8] ?? "") : "";
        i += 2;
      } else if (codes[i + 1] === 2) i += 4;
    }
  }
}

function look(s: State): string {
  return [
    s.colour && `ansi-${s.colour}`,
    s.bold && "font-semibold",
    s.dim && "opacity-75",
    s.italic && "italic",
    s.underline && "underline",
  ]
    .filter(Boolean)
    .join(" ");
}
