import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { icons, svg } from "../../icons";

const drawn = readdirSync("public/icon").map((file) => file.replace(/\.svg$/, ""));

it("takes each icon from the package or from the tree, not from both", () => {
  expect(drawn.filter((name) => svg(name))).toEqual([]);
  expect(svg("constructor")).toBeUndefined();
  for (const name of Object.keys(icons)) {
    expect(svg(name)).toMatch(
      /^<svg xmlns="[^"]+" viewBox="0 0 24 24" fill="#[0-9a-fA-F]{6}"><path d="[^"]+"\/><\/svg>\n$/,
    );
  }
});

it("has the icons that the dashboard's own sources name", () => {
  const sources = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => /\.tsx?$/.test(file));
  const named = sources.flatMap((file) =>
    [...readFileSync(`src/${file}`, "utf8").matchAll(/\/icon\/([a-z.-]+)\.svg/g)].map((match) => match[1]!),
  );
  expect(named).toEqual(
    expect.arrayContaining(["code", "code-insiders", "cursor", "jetbrains", "vscodium", "windsurf", "zed"]),
  );
  expect(named.filter((name) => !drawn.includes(name) && !svg(name))).toEqual([]);
});
