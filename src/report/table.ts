/** One table description rendered as plain text (for 80 columns and pipes) and as HTML. */
import { escapeHtml, oneLine } from "./escape.ts";

export interface Table {
  readonly columns: readonly { readonly title: string; readonly align: "left" | "right" }[];
  readonly rows: readonly (readonly string[])[];
}

const WIDTH = 80;

/**
 * Columns padded to their widest cell, two spaces apart, or one where that brings the table within 80 columns. One that
 * is wider all the same continues below, each part beginning with the columns that name its rows.
 */
export function textTable(table: Table): string {
  const cells = [table.columns.map((column) => column.title), ...table.rows].map((row) => row.map(oneLine));
  const widths = table.columns.map((_, i) => Math.max(...cells.map((row) => row[i]!.length)));
  const total = (columns: readonly number[], gap: number) =>
    columns.reduce((sum, i) => sum + widths[i]! + gap, -gap);
  const pad = (cell: string, i: number) =>
    table.columns[i]!.align === "right" ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!);
  return parts(table.columns, (columns) => total(columns, 1) <= WIDTH)
    .map((columns) => {
      const gap = total(columns, 2) > WIDTH ? " " : "  ";
      return cells
        .map((row) =>
          columns
            .map((i) => pad(row[i]!, i))
            .join(gap)
            .trimEnd(),
        )
        .join("\n");
    })
    .join("\n\n");
}

/** Which columns stand side by side: all, or as many as fit beside those on the left that name the rows. */
function parts(columns: Table["columns"], fits: (columns: readonly number[]) => boolean): number[][] {
  const all = [...columns.keys()];
  if (fits(all)) return [all];
  const numbers = columns.findIndex(({ align }) => align === "right");
  let names = all.slice(0, Math.max(1, numbers));
  if (!all.slice(names.length).every((i) => fits([...names, i]))) names = [0];
  const found: number[][] = [];
  for (const i of all.slice(names.length)) {
    const last = found.at(-1);
    if (last && fits([...last, i])) last.push(i);
    else found.push([...names, i]);
  }
  return found;
}

/** Scrolls sideways when the page is narrow. The first cell of each row is its heading. */
export function htmlTable(table: Table, caption: string): string {
  const align = (i: number) => (table.columns[i]!.align === "right" ? ' class="number"' : "");
  const head = table.columns
    .map((column, i) => `<th scope="col"${align(i)}>${escapeHtml(column.title)}</th>`)
    .join("");
  const rows = table.rows.map((row) => {
    const cells = row.map((cell, i) =>
      i === 0
        ? `<th scope="row"${align(i)}>${escapeHtml(cell)}</th>`
        : `<td${align(i)}>${escapeHtml(cell)}</td>`,
    );
    return `<tr>${cells.join("")}</tr>`;
  });
  return `<div class="scroll" tabindex="0"><table><caption>${escapeHtml(caption)}</caption><thead><tr>${head}</tr></thead><tbody>\n${rows.join("\n")}\n</tbody></table></div>`;
}

/** Words broken into lines of at most 80 columns; lines after the first are indented. */
export function wrap(text: string, first = "", indent = first.replace(/./g, " ")): string {
  const lines: string[] = [];
  let line = first;
  let empty = true;
  for (const word of oneLine(text).split(" ")) {
    if (!empty && line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = indent;
      empty = true;
    }
    line += empty ? word : ` ${word}`;
    empty = false;
  }
  return [...lines, line].join("\n");
}
