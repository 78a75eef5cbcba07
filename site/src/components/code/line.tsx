import type { Kind, Piece } from "~/lib/hcl";

const looks: Record<Kind, string> = {
  "": "",
  comment: "text-code-comment",
  string: "text-code-string",
  literal: "text-code-literal",
  keyword: "text-code-keyword",
  block: "text-code-block",
  name: "text-code-name",
  function: "text-code-function",
};

// CodeLine shows a line of a file in its colours.
export const CodeLine = ({ pieces }: { pieces: Piece[] }) =>
  pieces.map(({ text, kind }, i) =>
    kind ? (
      <span key={i} className={looks[kind]}>
        {text}
      </span>
    ) : (
      text
    ),
  );
