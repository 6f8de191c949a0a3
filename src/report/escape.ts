/** Makes text from data safe to stand in HTML, SVG and on a terminal. Run names and labels are hostile until here. */

/** Replaces what no XML document may hold (control characters, lone surrogates) by U+FFFD. */
export function printable(text: string): string {
  return text.replace(/(?![\t\n\r])\p{Cc}|\p{Surrogate}|[\ufffe\uffff]/gu, "\ufffd");
}

/** Text for an HTML element or a quoted attribute. */
export function escapeHtml(text: string): string {
  return printable(text)
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

/** One line for a terminal: control characters (escape sequences too) and line breaks become visible. */
export function oneLine(text: string): string {
  return printable(text).replace(/\s+/g, " ");
}
