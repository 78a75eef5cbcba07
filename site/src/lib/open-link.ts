// Links and badges that create a workspace of a template, for READMEs and wikis.

export interface OpenLink {
  template: string; // as paths have it
  name: string; // of the workspace; "" for one that is made up
  auto: boolean; // asks only whether to create it
  values: Record<string, string>; // of parameters
}

// openLink returns the address of the form with the values filled in.
export function openLink(origin: string, { template, name, auto, values }: OpenLink): string {
  const query = new URLSearchParams({ mode: auto ? "auto" : "manual" });
  if (name) query.set("name", name);
  for (const [key, value] of Object.entries(values)) query.set(`param.${key}`, value);
  return `${origin}/templates/${encodeURIComponent(template)}/workspace?${query}`;
}

const alt = "Open in Coder";
const picture = (origin: string) => `${origin}/open-in-coder.svg`;

// plain returns an address without characters that Markdown or HTML would take for their own. URLSearchParams and
// encodeURIComponent leave only these.
const plain = (address: string) =>
  address.replaceAll("(", "%28").replaceAll(")", "%29").replaceAll("'", "%27").replaceAll("&", "&amp;");

export const markdownBadge = (origin: string, link: string) =>
  `[![${alt}](${picture(origin)})](${plain(link).replaceAll("&amp;", "&")})`;

export const htmlBadge = (origin: string, link: string) =>
  `<a href="${plain(link)}"><img src="${picture(origin)}" alt="${alt}" height="32"></a>`;

// suggestedName makes up a name for a workspace of a template.
export function suggestedName(template: string): string {
  const digits = crypto.getRandomValues(new Uint16Array(1))[0]!.toString(16).padStart(4, "0");
  return `${template.slice(0, 27).replace(/-+$/, "")}-${digits}`;
}
