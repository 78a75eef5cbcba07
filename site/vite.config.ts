import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { productIcons } from "./icons.ts";

// What the list of workspaces, the first page, needs beside the frame of every page.
const first = [
  ...["columns.ts", "links.ts"].map((name) => `src/lib/${name}`),
  ...["card", "input", "menu", "page", "pending", "status"].map((name) => `src/components/ui/${name}.tsx`),
  ...["agent/path-mark", "workspace/actions", "workspace/row-apps"].map((name) => `src/components/${name}.tsx`),
  ...["actions.ts", "follow.ts"].map((name) => `src/api/${name}`),
  ...["boxes", "plus", "refresh-cw", "trash-2", "users"].map(
    (name) => `node_modules/lucide-react/dist/esm/icons/${name}.mjs`,
  ),
];
for (const file of first) {
  if (!existsSync(new URL(file, import.meta.url)))
    throw new Error(`vite.config.ts names ${file}, which does not exist`);
}

// Where `npm run dev` sends API calls: a server that was started by hand.
const server = process.env["CODER_URL"] ?? "http://127.0.0.1:3000";

// bareIcons removes from Lucide's drawings what only React's development build looks at: the keys of lists that never
// change, 700 bytes of the first load.
function bareIcons(): Plugin {
  return {
    name: "bare-icons",
    apply: "build",
    transform: {
      filter: { id: /lucide-react\/dist\/esm\/icons\// },
      handler: (code) => ({ code: code.replace(/, key: "\w+"/g, "").replace("__iconData.node;\n", ""), map: null }),
    },
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), productIcons(), bareIcons()],
  resolve: { alias: { "~": fileURLToPath(new URL("src", import.meta.url)) } },
  build: {
    outDir: "build", // scripts/pack.mjs compresses it into dist
    assetsInlineLimit: 0, // the page's policy allows no data: scripts or styles
    modulePreload: { polyfill: false },
    manifest: true, // read by the test of the first load's size
    target: "es2022",
    chunkSizeWarningLimit: 1000, // kB; the texts of all documents, which load where they are shown, are the largest
    rolldownOptions: {
      output: {
        // One file compresses better than many small ones.
        codeSplitting: {
          groups: [
            {
              name: "list",
              test: (id) => first.some((file) => id.endsWith(`/${file}`)),
            },
          ],
        },
      },
    },
  },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/bin", "/healthz"].map((path) => [path, { target: server, ws: true, changeOrigin: true }]),
    ),
  },
  test: { include: ["src/**/*.test.{ts,tsx}"], testTimeout: 60_000 }, // the limit is for a test that hangs
});
