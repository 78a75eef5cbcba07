// A template's README. Its text becomes elements one by one: markup in it stays text, and nothing is loaded from
// elsewhere.
import { lexer, type Token, type Tokens } from "marked";
import { Fragment, type ReactNode } from "react";

export default function Markdown({ text }: { text: string }) {
  // Some READMEs begin with front matter.
  const body = text.replace(/^---\n[\s\S]*?\n---\n/, "");
  return <div className="prose">{blocks(lexer(body))}</div>;
}

const blocks = (tokens: Token[]): ReactNode => tokens.map((t, i) => <Fragment key={i}>{block(t)}</Fragment>);

function block(t: Token): ReactNode {
  switch (t.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // The page has its own first-level heading.
      const Heading = `h${Math.min(6, (t as Tokens.Heading).depth + 1)}` as "h2";
      return <Heading>{inline(t.tokens)}</Heading>;
    }
    case "paragraph":
      return <p>{inline(t.tokens)}</p>;
    case "code":
      return (
        <pre tabIndex={0}>
          <code>{(t as Tokens.Code).text}</code>
        </pre>
      );
    case "blockquote":
      return <blockquote>{blocks(t.tokens ?? [])}</blockquote>;
    case "hr":
      return <hr />;
    case "list": {
      const list = t as Tokens.List;
      const items = list.items.map((item, i) => <li key={i}>{blocks(item.tokens)}</li>);
      return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table": {
      const table = t as Tokens.Table;
      return (
        <div className="overflow-x-auto" tabIndex={0}>
          <table>
            <thead>
              <tr>
                {table.header.map((c, i) => (
                  <th key={i}>{inline(c.tokens)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {table.rows.map((row, i) => (
                <tr key={i}>
                  {row.map((c, j) => (
                    <td key={j}>{inline(c.tokens)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    }
    case "text":
      return t.tokens ? inline(t.tokens) : unescape((t as Tokens.Text).text);
    case "checkbox":
      return <input type="checkbox" checked={(t as Tokens.Checkbox).checked} disabled aria-label="done" />;
    case "html":
      return <p>{(t as Tokens.HTML).text}</p>;
    default:
      return t.raw;
  }
}

const inline = (tokens: Token[] | undefined): ReactNode =>
  (tokens ?? []).map((t, i) => <Fragment key={i}>{span(t)}</Fragment>);

function span(t: Token): ReactNode {
  switch (t.type) {
    case "strong":
      return <strong>{inline(t.tokens)}</strong>;
    case "em":
      return <em>{inline(t.tokens)}</em>;
    case "del":
      return <del>{inline(t.tokens)}</del>;
    case "codespan":
      return <code>{unescape((t as Tokens.Codespan).text)}</code>;
    case "br":
      return <br />;
    case "link":
      return <Out href={(t as Tokens.Link).href}>{inline(t.tokens)}</Out>;
    case "image":
      return <Out href={(t as Tokens.Image).href}>{(t as Tokens.Image).text || "picture"}</Out>;
    case "text":
      return t.tokens ? inline(t.tokens) : unescape((t as Tokens.Text).text);
    case "checkbox":
      return block(t);
    case "escape":
      return (t as Tokens.Escape).text;
    default:
      return t.raw;
  }
}

// The lexer escapes some text for HTML. React escapes it again.
const unescape = (text: string) =>
  text.replace(
    /&(?:amp|lt|gt|quot|#39);/g,
    (e) => ({ "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" })[e] ?? e,
  );

// Out links to another site.
const Out = ({ href, children }: { href: string; children: ReactNode }) =>
  /^https?:\/\//i.test(href) ? (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  ) : (
    <span title={href}>{children}</span>
  );
