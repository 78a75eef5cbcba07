// Builds the documentation as files (`make docs`): the program that writes the pages, and with --mode browser what their
// search and style are.
import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig(({ mode }) => ({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "~": at("src") } },
  publicDir: false,
  build:
    mode === "browser"
      ? {
          outDir: at("../build/docs"),
          emptyOutDir: true,
          lib: { entry: at("src/static/search.ts"), formats: ["iife"], name: "docs", fileName: () => "search.js" },
          rolldownOptions: { output: { assetFileNames: "docs[extname]" } },
        }
      : { outDir: at("build/docs"), ssr: at("src/static/main.ts") },
}));
