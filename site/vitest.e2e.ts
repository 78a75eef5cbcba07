import { defineConfig } from "vitest/config";

// The browser suite: one server and one browser for all files, which therefore run one after the other.
export default defineConfig({
  test: {
    include: ["e2e/**/*.test.ts"],
    globalSetup: "e2e/setup.ts",
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 30_000 } }, // as long as Playwright waits for what a page shall show
  },
});
