// A template's README, or a page of the documentation. Its text becomes elements one by one: markup in it stays text,
// and nothing is loaded from elsewhere.
import { lexer, type Token, type Tokens } from "marked";
import { createContext, Fragment, type ReactNode, useContext } from "react";
import { Link } from "wouter";
import { slug } from "~/lib/slug";

// Resolve returns the dashboard's page that a link leads to, or the address of a picture, if there is one.
type Resolve = (href: string) => string | undefined;

// Of a page of the documentation: how its links and pictures are resolved. Its headings have anchors. Null for other
// texts.
const Links = createContext<{ resolve: Resolve; picture: Resolve } | null>(null);

interface MarkdownProps {
  text: string;
  resolve?: Resolve;
  picture?: Resolve;
}

export default function Markdown({ text, resolve, picture = () => undefined }: MarkdownProps) {
  // Some READMEs begin with front matter.
  const body = text.replace(/^---\n[\s\S]*?\n---\n/, "");
  return (
    <Links value={resolve ? { resolve, picture } : null}>
      <div className="prose">{blocks(lexer(body))}</div>
    </Links>
  );
}

// Phrases is a short text in the middle of a page, such as a parameter's description.
export const Phrases = ({ text }: { text: string }) => (
  <Links value={null}>{blocks(lexer(text, { breaks: true }))}</Links>
);

// headings returns the texts of a page's headings of a level, without their markup.
export const headings = (text: string, depth: number): string[] =>
  lexer(text)
    .filter((t): t is Tokens.Heading => t.type === "heading" && t.depth === depth)
    .map((t) => plain(t.tokens));

const plain = (tokens: Token[] | undefined): string =>
  (tokens ?? [])
    .map((t) => ("tokens" in t && t.tokens ? plain(t.tokens) : unescape("text" in t ? t.text : t.raw)))
    .join("");

const blocks = (tokens: Token[]): ReactNode => tokens.map((t, i) => <Fragment key={i}>{block(t)}</Fragment>);

function block(t: Token): ReactNode {
  switch (t.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return <Heading of={t as Tokens.Heading} />;
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
          <table role="table" className="stacked">
            <thead role="rowgroup">
              <tr role="row">
                {table.header.map((c, i) => (
                  <th key={i} role="columnheader">
                    {inline(c.tokens)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody role="rowgroup">
              {table.rows.map((row, i) => (
                <tr key={i} role="row">
                  {row.map((c, j) => (
                    <td key={j} role="cell" data-column={plain(table.header[j]?.tokens)}>
                      {inline(c.tokens)}
                    </td>
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
    case "html": {
      const text = (t as Tokens.HTML).text.trim();
      const comment = text.startsWith("<!--") && text.indexOf("-->") === text.length - 3;
      return comment ? null : <p>{text}</p>;
    }
    default:
      return t.raw;
  }
}

function Heading({ of: t }: { of: Tokens.Heading }) {
  const documents = useContext(Links) !== null;
  // The page has its own first-level heading, which a document's first line is.
  const Level = `h${Math.min(6, documents ? t.depth : t.depth + 1)}` as "h2";
  return <Level {...(documents && { id: slug(plain(t.tokens)) })}>{inline(t.tokens)}</Level>;
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
      return <Code text={unescape((t as Tokens.Codespan).text)} />;
    case "br":
      return <br />;
    case "link":
      return <Out href={(t as Tokens.Link).href}>{inline(t.tokens)}</Out>;
    case "image":
      return <Picture of={t as Tokens.Image} />;
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

// Code keeps a short word, such as a flag, in one line. A long one, which would widen the column of a table, can go on
// in another line after a separator.
function Code({ text }: { text: string }) {
  if (/^(?=\S{1,26}$)\S*-/.test(text)) return <code className="whitespace-nowrap">{text}</code>;
  const parts = text.match(/.{12,}?[{,_./](?=.{6})|.+/gs) ?? [];
  return (
    <code>
      {parts.map((part, i) => (
        <Fragment key={i}>
          {i > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
    </code>
  );
}

// The lexer escapes some text for HTML. React escapes it again.
const unescape = (text: string) =>
  text.replace(
    /&(?:amp|lt|gt|quot|#39);/g,
    (e) => ({ "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" })[e] ?? e,
  );

// Out links to another site, or in the documentation to another page of it.
function Out({ href, children }: { href: string; children: ReactNode }) {
  const inside = useContext(Links)?.resolve(href);
  if (/^https?:\/\//i.test(href))
    return (
      <a href={href} target="_blank" rel="noopener noreferrer">
        {children}
      </a>
    );
  if (inside?.startsWith("#")) return <a href={inside}>{children}</a>;
  if (inside) return <Link href={inside}>{children}</Link>;
  return <span title={href}>{children}</span>;
}

// Picture shows a picture of the documentation, and leads to it at its full size. Of other texts, it links to where the
// picture is.
function Picture({ of: t }: { of: Tokens.Image }) {
  const links = useContext(Links);
  const src = links?.picture(t.href);
  if (src)
    return (
      <a href={src} target="_blank" rel="noopener noreferrer">
        <img src={src} alt={t.text} loading="lazy" className="rounded border border-line" />
      </a>
    );
  return links ? null : <Out href={t.href}>{t.text || "picture"}</Out>;
}
