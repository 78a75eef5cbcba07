// Words of the commands that people copy into a shell. What others named must neither be run
// nor be taken for an option.
// The command line has the same.

const unprintable = "…"; // stands for what no word can show as it is

// What has no shape: controls, characters that reorder text, blanks other than a space, and what fonts leave out.
const hidden = /(?! )[\p{C}\p{Z}\p{DI}]/u;

/** word returns a text as one word for the shells of Unix, or for PowerShell and cmd.exe alike. */
export function word(text: string, windows = /Windows/.test(navigator.userAgent)): string {
  if (text.length > 1024 || text.startsWith("-") || hidden.test(text)) return unprintable;
  if (!windows) return /^(?!=)[\p{L}\p{N}_@%+=:,./-]+$/u.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
  if (/["$%`!“”„]/.test(text)) return unprintable;
  return /^[\p{L}\p{N}_+=:./\\-]+$/u.test(text) ? text : `"${text.replace(/\\$/, "\\\\")}"`;
}

/** sh is the tag of a command: sh`coder ssh ${name}` has the name as a word. */
export const sh = (texts: TemplateStringsArray, ...words: (string | number)[]) =>
  texts.reduce((all, text, i) => all + word(String(words[i - 1])) + text);
