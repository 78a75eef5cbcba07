import { expect, it } from "vitest";
import { freeName, nameFrom } from "./free-name";

it("makes names of texts", () => {
  expect(nameFrom("My Folder (2)")).toBe("my-folder-2");
  expect(nameFrom("__go_1.26__")).toBe("go-1-26");
  expect(nameFrom(`${"a".repeat(31)}-b`)).toBe("a".repeat(31));
  expect(nameFrom("…")).toBe("");
});

it("suggests the first name that is free", () => {
  expect(freeName("docker", [])).toBe("docker");
  expect(freeName("docker", ["docker-2", "podman"])).toBe("docker");
  expect(freeName("docker", ["docker"])).toBe("docker-2");
  expect(freeName("docker", ["Docker", "docker-2", "docker-4"])).toBe("docker-3");
  expect(freeName("a".repeat(32), ["a".repeat(32)])).toBe(`${"a".repeat(30)}-2`);
  expect(freeName(`${"a".repeat(29)}-bc`, [`${"a".repeat(29)}-bc`])).toBe(`${"a".repeat(29)}-2`);
});
