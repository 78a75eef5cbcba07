// The text editor of a template's files: CodeMirror. It writes its styles into style elements, which the page's policy
// refuses, except in a shadow root: there it adopts style sheets. What depends on the theme are custom properties,
// which reach into the root.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  bracketMatching,
  HighlightStyle,
  indentOnInput,
  indentService,
  indentUnit,
  StreamLanguage,
  syntaxHighlighting,
} from "@codemirror/language";
import { gotoLine, highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension, RangeSet, StateEffect, StateField } from "@codemirror/state";
import {
  type Command,
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  getDialog,
  GutterMarker,
  gutterLineClass,
  highlightActiveLine,
  keymap,
  lineNumbers,
  showPanel,
  WidgetType,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Position } from "./diagnostic";
import { indentOf, isHCL, piecesOf, scan, start, type State } from "./hcl";

const step = 2; // columns, as `terraform fmt` indents

const hcl = StreamLanguage.define<State>({
  name: "hcl",
  startState: start,
  copyState: (state) => ({ ...state }),
  token(stream, state) {
    const { end, kind } = scan(stream.string, stream.pos, state);
    stream.pos = end;
    return kind || null;
  },
  tokenTable: {
    literal: tags.atom,
    block: tags.typeName,
    name: tags.propertyName,
    function: tags.function(tags.variableName),
  },
  languageData: {
    commentTokens: { line: "#", block: { open: "/*", close: "*/" } },
    indentOnInput: /^\s*[}\])]$/,
  },
});

const colours = HighlightStyle.define([
  { tag: tags.comment, color: "var(--code-comment)" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: tags.atom, color: "var(--code-literal)" },
  { tag: tags.keyword, color: "var(--code-keyword)" },
  { tag: tags.typeName, color: "var(--code-block)" },
  { tag: tags.propertyName, color: "var(--code-name)" },
  { tag: tags.function(tags.variableName), color: "var(--code-function)" },
]);

const indentation = indentService.of((context, pos) => {
  const { from, text } = context.lineAt(pos);
  const before = context.state.doc.sliceString(0, from, "\n").split("\n");
  while (before.at(-1)?.trim() === "") before.pop();
  const state = start();
  for (const line of before) piecesOf(line, state);
  return before.length === 0 ? 0 : indentOf(before.at(-1)!, text, state, step);
});

// Message shows what is wrong with a line below it.
class Message extends WidgetType {
  readonly text: string;
  constructor(text: string) {
    super();
    this.text = text;
  }
  override eq(other: Message) {
    return other.text === this.text;
  }
  toDOM() {
    const message = document.createElement("div");
    message.className = "cm-problem";
    message.textContent = this.text;
    return message;
  }
}

const wrongNumber = new (class extends GutterMarker {
  override elementClass = "cm-wrongNumber";
})();
const wrongLine = Decoration.line({ class: "cm-wrongLine" });

const setProblems = StateEffect.define<readonly Position[]>();

// The lines with problems and their messages, which move with their lines.
const problems = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    let now = marks.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (!effect.is(setProblems)) continue;
      const { doc } = transaction.state;
      now = Decoration.set(
        effect.value.flatMap(({ line: number, message }) => {
          const line = doc.line(Math.min(Math.max(number, 1), doc.lines));
          const below = Decoration.widget({ widget: new Message(message), block: true, side: 1 });
          return [wrongLine.range(line.from), below.range(line.to)];
        }),
        true,
      );
    }
    return now;
  },
  provide: (field) => [
    EditorView.decorations.from(field),
    gutterLineClass.compute([field], (state) => {
      const at: number[] = [];
      state.field(field).between(0, state.doc.length, (from, _, mark) => {
        if (mark.spec.class === "cm-wrongLine") at.push(from);
      });
      return RangeSet.of(at.map((from) => wrongNumber.range(from)));
    }),
  ],
});

// goToLine is CodeMirror's, except that the text has the focus again afterwards: CodeMirror looks for it in the
// document.
const goToLine: Command = (view) => {
  gotoLine(view);
  const dialog = getDialog(view, "cm-goto-line")?.dom;
  dialog?.addEventListener("keydown", (e) => {
    const inForm = e.target instanceof Element && e.target.closest("form");
    if (inForm && (e.key === "Enter" || e.key === "Escape")) view.focus();
  });
  for (const button of dialog?.querySelectorAll("button") ?? []) button.addEventListener("click", () => view.focus());
  return true;
};

// Tab indents, so it cannot leave the text. After Escape it does, until the text changes or has the focus again.
const leaving: Extension = [
  keymap.of([
    {
      key: "Escape",
      run: (view) => {
        view.setTabFocusMode(true);
        return true;
      },
    },
  ]),
  EditorView.domEventHandlers({ focus: (_, view) => view.setTabFocusMode(false) }),
  EditorView.updateListener.of(({ docChanged, view }) => {
    if (docChanged) view.setTabFocusMode(false);
  }),
];

// withLineEnds is a text with the line ends of a file.
const withLineEnds = (text: string, { lineBreak }: EditorState) => text.replace(/\r\n?|\n/g, lineBreak);

// Where text takes the place of a selection, browsers copy the look of what was there into style attributes, which the
// page's policy refuses, with a complaint.
const typedOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { selection, readOnly } = view.state;
    const typed = event.inputType === "insertText" && !event.isComposing ? event.data : null;
    if (typed === null || readOnly || selection.main.empty) return false;
    event.preventDefault();
    const change = view.state.replaceSelection(withLineEnds(typed, view.state));
    view.dispatch(change, { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

const onMac = /Mac|iP(?:hone|ad)/.test(navigator.platform);

const hint = showPanel.of(() => {
  const dom = document.createElement("p");
  dom.id = "keys";
  dom.className = "cm-keys";
  const mod = onMac ? "Cmd" : "Ctrl";
  dom.textContent =
    "Tab indents. To leave the text, press Escape, then Tab. " + `${mod}+F finds, ${mod}+Alt+G goes to a line.`;
  return { dom };
});

const look = EditorView.theme({
  "&": { maxHeight: "60vh", color: "var(--ink)", background: "var(--panel)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "inherit", lineHeight: "1.25rem", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)", padding: "8px 0" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { background: "var(--panel)", color: "var(--muted)", border: "none" },
  ".cm-lineNumbers .cm-gutterElement": { minWidth: "3rem", padding: "0 1rem 0 0.5rem" },
  ".cm-activeLine": { background: "color-mix(in srgb, var(--raised) 45%, transparent)" },
  ".cm-gutterElement.cm-wrongNumber": { background: "var(--bad-soft)", color: "var(--bad)", fontWeight: "bold" },
  ".cm-wrongLine, .cm-activeLine.cm-wrongLine": { background: "var(--bad-soft)" },
  ".cm-problem": {
    background: "var(--bad-soft)",
    color: "var(--bad)",
    padding: "2px 12px 6px 6px",
    width: "0", // no wider than the lines
    minWidth: "100%",
    boxSizing: "border-box",
    whiteSpace: "pre-wrap",
    overflowWrap: "anywhere",
    fontFamily: "system-ui, sans-serif",
  },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    background: "var(--code-selection)",
  },
  ".cm-selectionMatch": { background: "var(--accent-soft)" },
  ".cm-searchMatch": { background: "var(--warn-soft)", outline: "1px solid var(--warn)" },
  ".cm-searchMatch-selected": { background: "var(--accent-soft)", outline: "2px solid var(--accent)" },
  "&.cm-focused .cm-matchingBracket": { background: "none", outline: "1px solid var(--edge)" },
  "&.cm-focused .cm-nonmatchingBracket": { background: "var(--bad-soft)" },
  ".cm-panels": { background: "var(--raised)", color: "var(--ink)", zIndex: "1" },
  ".cm-panels-top": { borderBottom: "1px solid var(--line)" },
  ".cm-panels-bottom": { borderTop: "1px solid var(--line)" },
  ".cm-textfield": {
    background: "var(--panel)",
    color: "inherit",
    border: "1px solid var(--edge)",
    borderRadius: "4px",
  },
  ".cm-button": {
    background: "var(--panel)",
    backgroundImage: "none",
    color: "inherit",
    border: "1px solid var(--edge)",
    borderRadius: "4px",
  },
  ".cm-panel button:focus-visible, .cm-panel input:focus-visible": {
    outline: "2px solid var(--accent)",
    outlineOffset: "1px",
  },
  ".cm-panel.cm-search [name=close], .cm-dialog-close": { color: "inherit" },
  ".cm-keys": { margin: "0", padding: "4px 12px", color: "var(--muted)" },
});

// What a view does when its text changes. A state outlives the view that it was made for.
const changed = new WeakMap<EditorView, (text: string) => void>();

const always: Extension = [
  lineNumbers(),
  history(),
  drawSelection(),
  bracketMatching(),
  indentOnInput(),
  indentUnit.of(" ".repeat(step)),
  highlightActiveLine(),
  highlightSelectionMatches(),
  search({ top: true }),
  syntaxHighlighting(colours),
  problems,
  hint,
  look,
  keymap.of([{ key: "Mod-Alt-g", run: goToLine }, ...searchKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
  typedOver,
  EditorView.clipboardInputFilter.of(withLineEnds),
  leaving, // Escape closes what is open first
  EditorView.updateListener.of(({ docChanged, view, state }) => {
    if (docChanged) changed.get(view)?.(state.sliceDoc());
  }),
];

const access = new Compartment();

// stateOf begins to edit a file. Its line ends stay as they are.
function stateOf(path: string, text: string): EditorState {
  const windows = text.includes("\r\n") && !/(?<!\r)\n/.test(text);
  return EditorState.create({
    doc: text,
    extensions: [
      EditorState.lineSeparator.of(windows ? "\r\n" : "\n"),
      isHCL(path) ? [hcl, indentation] : [],
      access.of([]),
      EditorView.contentAttributes.of({
        "aria-label": path,
        "aria-describedby": "keys",
        spellcheck: "false",
        autocapitalize: "off",
      }),
      always,
    ],
  });
}

// A file that was edited: its text with the history, and the problems that it was marked with.
interface Edited {
  state: EditorState;
  marked: readonly Position[];
}

export type Kept = Map<string, Edited>;

export interface Editor {
  // show edits a file: what is kept of it, unless its text has changed since. The text of the file that is shown
  // already is ignored, since the user may have typed more meanwhile, unless the edition is another.
  show: (path: string, text: string, edition: number) => void;
  // mark shows problems at their lines, in their files. They move with the lines until other problems take their place.
  mark: (problems: readonly Position[]) => void;
  lock: (locked: boolean) => void;
  goTo: (line: number) => void;
  close: () => void;
}

// openEditor edits files below a host element, one at a time. kept has the others, also for the next editor.
export function openEditor(host: HTMLElement, kept: Kept, onChange: (text: string) => void): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const view = new EditorView({ parent: root, root });
  changed.set(view, onChange);
  let current: string | undefined;
  let shown = 0; // its edition
  let marked: readonly Position[] = [];
  let readOnly: Extension = [];
  const setMarks = () =>
    current !== undefined && view.dispatch({ effects: setProblems.of(marked.filter(({ file }) => file === current)) });
  const setAccess = () => view.dispatch({ effects: access.reconfigure(readOnly) });
  const keep = () => current !== undefined && kept.set(current, { state: view.state, marked });
  return {
    show(path, text, edition) {
      if (path === current && edition === shown) return;
      shown = edition;
      if (path !== current) keep();
      const edited = path === current ? undefined : kept.get(path);
      const same = edited?.state.sliceDoc() === text ? edited : undefined;
      current = path;
      view.setState(same?.state ?? stateOf(path, text));
      setAccess();
      if (same?.marked !== marked) setMarks();
    },
    mark(found) {
      if (found === marked) return;
      marked = found;
      setMarks();
    },
    lock(locked) {
      readOnly = locked ? EditorState.readOnly.of(true) : [];
      setAccess();
    },
    goTo(number) {
      const line = view.state.doc.line(Math.min(Math.max(number, 1), view.state.doc.lines));
      view.dispatch({
        selection: { anchor: line.from },
        effects: EditorView.scrollIntoView(line.from, { y: "center" }),
      });
      view.focus();
    },
    close() {
      keep();
      view.destroy();
    },
  };
}
