// An editor of text files, loaded only by pages that edit.
import { useEffect, useRef } from "react";
import type { Position } from "~/lib/diagnostic";
import { type Editor, type Kept, openEditor } from "~/lib/editor";

interface Props {
  path: string;
  text: string;
  edition: number; // another one replaces what the user has typed
  problems: readonly Position[]; // of all files
  locked: boolean; // the text can be read and searched
  target: { file: string; line: number } | undefined; // gets the focus, once its file is shown
  kept: Kept;
  onChange: (text: string) => void;
  onReached: () => void;
}

export default function CodeEditor({
  path,
  text,
  edition,
  problems,
  locked,
  target,
  kept,
  onChange,
  onReached,
}: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor>(null);
  const change = useRef(onChange);
  change.current = onChange;
  useEffect(() => {
    const opened = openEditor(host.current!, kept, (text) => change.current(text));
    editor.current = opened;
    return () => opened.close();
  }, [kept]);
  useEffect(() => editor.current?.mark(problems), [problems, kept]);
  useEffect(() => editor.current?.show(path, text, edition), [path, text, edition, kept]);
  useEffect(() => editor.current?.lock(locked), [locked, kept]);
  useEffect(() => {
    if (target?.file !== path) return;
    editor.current?.goTo(target.line);
    onReached();
  }, [path, target, onReached]);
  return <div ref={host} className="font-mono text-[12.5px]" />;
}
