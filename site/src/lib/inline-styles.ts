// xterm.js writes style elements and attributes, which the page's content-security-policy forbids, as it should: what may inject styles may read
// what is on the page. Styles that a script makes by the CSS object model are allowed, so its elements are given one of those.

// withoutInlineStyles runs `make`. Style elements that it creates put their text into style sheets of the document instead, and
// style attributes of spans, which true colours are drawn with, are set by the object model. The function that it returns undoes
// both.
export function withoutInlineStyles(make: () => void): () => void {
  const sheets: CSSStyleSheet[] = [];
  const create = document.createElement.bind(document);
  const replacement = ((name: string, options?: ElementCreationOptions) => {
    if (name.toLowerCase() !== "style") return create(name, options);
    const sheet = new CSSStyleSheet();
    sheets.push(sheet);
    document.adoptedStyleSheets.push(sheet);
    const stand = create("template"); // takes no part in the page
    const text = { set: (css: string) => sheet.replaceSync(css), get: () => "" };
    Object.defineProperties(stand, { textContent: text, innerText: text, innerHTML: text, sheet: { value: sheet } });
    return stand;
  }) as typeof document.createElement;
  document.createElement = replacement;
  try {
    make();
  } finally {
    // The method of the prototype shows again.
    delete (document as { createElement?: unknown }).createElement;
  }
  const set = HTMLElement.prototype.setAttribute;
  HTMLSpanElement.prototype.setAttribute = function (name: string, value: string) {
    if (name === "style") this.style.cssText = value;
    else set.call(this, name, value);
  };
  return () => {
    delete (HTMLSpanElement.prototype as { setAttribute?: unknown }).setAttribute;
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => !sheets.includes(s));
  };
}
