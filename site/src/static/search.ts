// The search of the documentation's files. It follows the system's theme, and works without a web server.
import "../index.css";
import { search } from "~/lib/docs";

const root = document.currentScript!.dataset["root"]!;
const box = document.querySelector<HTMLInputElement>("#search")!;
const list = document.querySelector<HTMLElement>("#results")!;
const page = document.querySelector<HTMLElement>("#page")!;

const dark = matchMedia("(prefers-color-scheme: dark)");
const look = () => (document.documentElement.dataset["theme"] = dark.matches ? "dark" : "light");
dark.addEventListener("change", look);
look();

box.hidden = false;
box.addEventListener("input", () => {
  const text = box.value.trim();
  const hits = search(text);
  list.replaceChildren(
    ...hits.map((hit) => {
      const link = document.createElement("a");
      link.className = "font-semibold text-accent hover:underline";
      const [path = "", hash] = hit.to.slice("/docs/".length).split("#");
      link.href = `${root}${path}.html${hash ? `#${hash}` : ""}`;
      link.textContent = hit.heading ? `${hit.title}: ${hit.heading}` : hit.title;
      // A section of the page itself: the page comes back.
      link.addEventListener("click", () => {
        box.value = "";
        list.hidden = true;
        page.hidden = false;
      });
      const excerpt = document.createElement("p");
      excerpt.className = "text-[13px] break-words text-muted";
      excerpt.textContent = hit.excerpt;
      const item = document.createElement("li");
      item.append(link, excerpt);
      return item;
    }),
    ...(hits.length === 0 ? ["No section has all of these words."] : []),
  );
  list.hidden = text === "";
  page.hidden = text !== "";
});
