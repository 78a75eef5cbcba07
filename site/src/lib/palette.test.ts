import { expect, it } from "vitest";
import { type Entry, found, rank } from "./palette";

it("wants every word, and prefers the beginnings of words", () => {
  expect(rank("Open web-dev", "dev web")).toBeDefined();
  expect(rank("Open web-dev", "web prod")).toBeUndefined();
  expect(rank("Templates", "temp")).toBeLessThan(rank("New template", "temp")!);
  expect(rank("New template", "temp")).toBeLessThan(rank("Contemporary", "temp")!);
});

it("keeps the order of the groups, with the best of each first", () => {
  const entry = (group: string, label: string): Entry => ({ key: label, group, label, run: () => undefined });
  const entries = [entry("Workspaces", "my-docker"), entry("Workspaces", "docker"), entry("Templates", "docker-2")];
  expect(found(entries, "docker").map((e) => e.label)).toEqual(["docker", "my-docker", "docker-2"]);
  expect(found(entries, "").map((e) => e.label)).toEqual(["my-docker", "docker", "docker-2"]);
});

it("puts what is named exactly first", () => {
  const entry = (group: string, label: string): Entry => ({ key: label, group, label, run: () => undefined });
  const entries = [entry("Workspaces", "meshed"), entry("Templates", "mesh-2"), entry("Pages", "Mesh")];
  expect(found(entries, "mesh").map((e) => e.label)).toEqual(["Mesh", "meshed", "mesh-2"]);
});
