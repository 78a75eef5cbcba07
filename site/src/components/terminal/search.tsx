// The search in what a terminal shows and has shown.
import { ChevronDown, ChevronUp, X } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { IconButton } from "~/components/ui/icon-button";
import type { Matches, Opened } from "~/lib/terminal";

interface Props {
  of: Opened;
  asked: number; // another number: the user has asked again
  onClose: () => void;
}

export function TerminalSearch({ of, asked, onClose }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const [matches, setMatches] = useState<Matches>();
  useEffect(() => {
    const listening = of.onMatches(setMatches);
    return () => {
      listening.dispose();
      of.find("", "typing");
    };
  }, [of]);
  useEffect(() => {
    input.current?.focus();
    input.current?.select();
  }, [asked]);
  const found =
    matches && (matches.of === 0 ? "No matches" : matches.at ? `${matches.at} of ${matches.of}` : "Matches");
  return (
    <search
      className="flex items-center gap-1 border-b border-line bg-panel px-2 py-1"
      onKeyDown={(e) => {
        if (e.key !== "Escape") return;
        e.preventDefault();
        onClose();
      }}
    >
      <input
        ref={input}
        type="search"
        aria-label="Search in the terminal"
        placeholder="Search"
        value={text}
        spellCheck={false}
        autoCapitalize="off"
        autoComplete="off"
        className="h-7 w-48 min-w-0 rounded-md border border-edge bg-panel px-2"
        onChange={(e) => {
          setText(e.target.value);
          of.find(e.target.value, "typing");
        }}
        onKeyDown={(e) => {
          if (e.key !== "Enter") return;
          e.preventDefault();
          of.find(text, e.shiftKey ? "previous" : "next");
        }}
      />
      <IconButton label="Previous match (Shift+Enter)" disabled={!text} onClick={() => of.find(text, "previous")}>
        <ChevronUp />
      </IconButton>
      <IconButton label="Next match (Enter)" disabled={!text} onClick={() => of.find(text, "next")}>
        <ChevronDown />
      </IconButton>
      <span role="status" className="text-muted">
        {text && found}
      </span>
      <IconButton label="Close the search (Esc)" className="ml-auto" onClick={onClose}>
        <X />
      </IconButton>
    </search>
  );
}
