// The pictures of the documentation, which the dashboard carries.
import { fileOf } from "./docs";

const images = import.meta.glob<string>("../../../docs/screenshots/*.webp", {
  query: "?url",
  import: "default",
  eager: true,
});

// names are the files of all pictures.
export const names = Object.keys(images).map((file) => file.slice(file.lastIndexOf("/") + 1));

// picture is the address of a picture in a page, undefined if it is not part of the documentation.
export const picture = (href: string, from: string): string | undefined =>
  images[`../../..${fileOf(href, from)?.pathname ?? ""}`];
