/** Builds the dashboard (web/) into dist/web: the served page, and the same page in one file for frozen reports. */
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

export default defineConfig({
  root: "web",
  // Relative, so that the page works wherever it is mounted.
  base: "./",
  assetsInclude: ["**/*.wasm"],
  resolve: {
    alias: {
      // The rooms shared with the browser use files only in Node.
      ...Object.fromEntries(
        ["fs", "path", "buffer", "string_decoder"].map((name) => [
          `node:${name}`,
          fileURLToPath(new URL("web/no-node.ts", import.meta.url)),
        ]),
      ),
    },
  },
  build: {
    outDir: "../dist/web",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    // One script: a frozen page has nowhere to load a second one from.
    rolldownOptions: { output: { codeSplitting: false } },
    chunkSizeWarningLimit: 1000,
  },
  plugins: [frozenPage()],
});

/** Adds `frozen.html`: script and style inlined, a policy that allows them by hash and no network at all. */
function frozenPage(): Plugin {
  return {
    name: "frozen-page",
    enforce: "post",
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const script = files.find((file) => file.type === "chunk")?.code.replaceAll("</script", "<\\/script");
      const style = files.find((file) => file.type === "asset" && file.fileName.endsWith(".css"));
      const page = bundle["index.html"];
      if (script === undefined || style?.type !== "asset" || page?.type !== "asset")
        throw new Error("expected index.html, one script and one style sheet");
      const css = String(style.source);
      const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
      const policy = `default-src 'none'; script-src ${hash(script)} 'wasm-unsafe-eval'; style-src ${hash(css)}; img-src data: blob:; base-uri 'none'; form-action 'none'`;
      const source = String(page.source)
        .replace(/<link rel="stylesheet"[^>]*>/, () => `<style>${css}</style>`)
        .replace(/<script type="module"[^>]*><\/script>/, "")
        .replace(
          "<head>",
          () =>
            `<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="${policy}">`,
        )
        .replace("</body>", () => `<!--mobalab-data-->\n<script type="module">${script}</script>\n</body>`);
      this.emitFile({ type: "asset", fileName: "frozen.html", source });
    },
  };
}
