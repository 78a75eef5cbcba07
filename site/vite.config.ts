import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Where `npm run dev` sends API calls: a server that was started by hand.
const server = process.env["CODER_URL"] ?? "http://127.0.0.1:3000";

export default defineConfig({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "~": fileURLToPath(new URL("src", import.meta.url)) } },
  build: {
    outDir: "build", // scripts/pack.mjs compresses it into dist
    assetsInlineLimit: 0, // the page's policy allows no data: scripts or styles
    modulePreload: { polyfill: false },
    manifest: true, // read by the test of the first load's size
    target: "es2022",
  },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/bin", "/healthz", "/icon"].map((path) => [path, { target: server, ws: true, changeOrigin: true }]),
    ),
  },
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
