import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { productIcons } from "./icons";

// What the list of workspaces, the first page, needs beside the frame of every page.
const first = [
  "src/lib/(columns|links|sort)\\.",
  "src/components/(input|menu|path-mark|row-apps|status|workspace-actions)\\.",
  "src/api/(actions|follow)\\.",
  "icons/(boxes|plus|refresh-cw|trash-2)\\.",
];

// Where `npm run dev` sends API calls: a server that was started by hand.
const server = process.env["CODER_URL"] ?? "http://127.0.0.1:3000";

export default defineConfig({
  plugins: [react(), tailwindcss(), productIcons()],
  resolve: { alias: { "~": fileURLToPath(new URL("src", import.meta.url)) } },
  build: {
    outDir: "build", // scripts/pack.mjs compresses it into dist
    assetsInlineLimit: 0, // the page's policy allows no data: scripts or styles
    modulePreload: { polyfill: false },
    manifest: true, // read by the test of the first load's size
    target: "es2022",
    rolldownOptions: {
      output: {
        // One file compresses better than many small ones.
        codeSplitting: {
          groups: [
            {
              name: "list",
              test: new RegExp(first.join("|")),
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
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
