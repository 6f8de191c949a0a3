/** The static HTML page around the report's sections: one file, no network, no script. */
import { createHash } from "node:crypto";
import { escapeHtml } from "./escape.ts";

/** Of the report's sections, wherever they stand. */
export const STYLE = `
:root{color-scheme:light dark;--ink:#1c1f24;--faint:#5a626c;--paper:#fbfbfa;--rule:#d9dde2;--accent:#1f4fd0;--tint:#f0f2f5}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8eb;--faint:#a2abb5;--paper:#15181c;--rule:#363c44;--accent:#8fb0ff;--tint:#1e2228}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
main{max-width:74rem;margin:0 auto;padding:2rem 1rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .5rem;overflow-wrap:anywhere}
h2{font-size:1.3rem;margin:3rem 0 .6rem;padding-top:.8rem;border-top:1px solid var(--rule)}
h3{font-size:1.05rem;margin:1.6rem 0 .4rem}
p,li,dd{overflow-wrap:anywhere}
p{max-width:46rem}
a{color:var(--accent)}
code,pre{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
pre{background:var(--tint);padding:.8rem 1rem;overflow-x:auto;border-radius:6px}
.lead{font-size:1.08rem}
.faint,figcaption,caption,.note{color:var(--faint)}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.25rem 1.2rem;margin:1rem 0}
dt{color:var(--faint)}
dd{margin:0}
figure{margin:1.2rem 0;max-width:62rem}
.card{background:#fff;border:1px solid var(--rule);border-radius:8px;padding:.5rem;overflow-x:auto}
.card svg{display:block;width:100%;min-width:38rem;height:auto}
figcaption{font-size:.9rem;margin-top:.5rem}
figcaption p{margin:.2rem 0}
.note{border-left:3px solid var(--accent);padding-left:.7rem}
.scroll{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-size:.84rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding-bottom:.4rem}
th,td{padding:.3rem .7rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule);white-space:nowrap}
thead th{border-bottom:2px solid var(--rule);white-space:normal;vertical-align:bottom}
tbody th{font-weight:500}
.number{text-align:right}
.claims td,.claims th,td:last-child{white-space:normal}
td:last-child:not(.number){min-width:11rem}
.claims td:last-child{min-width:16rem}
.supported{font-weight:700}
.sentences{max-width:46rem;padding-left:1.2rem}
.sentences li{margin:.25rem 0}
.warnings li{margin:.3rem 0}
summary{cursor:pointer;color:var(--accent);margin:.6rem 0}
@media (max-width:30rem){main{padding:1rem .75rem 3rem}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.5rem}h1{font-size:1.5rem}}
@media print{.card,.scroll{overflow:visible}.card svg{min-width:0}}
`;

/** A complete document. `body` is HTML whose data was escaped where it was put in. */
export function page(title: string, body: string): string {
  // Only this style sheet may apply, and nothing may be loaded or run, whatever a run name holds.
  const hash = createHash("sha256").update(STYLE).digest("base64");
  const policy = `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`;
}

export function section(id: string, title: string, content: string): string {
  return `<section id="${id}">\n<h2>${escapeHtml(title)}</h2>\n${content}\n</section>`;
}

export function list(items: readonly string[], className: string): string {
  return `<ul class="${className}">\n${items.map((item) => `<li>${escapeHtml(item)}</li>`).join("\n")}\n</ul>`;
}
