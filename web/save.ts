/** Saves what is on the page as files. Nothing here needs a secure context, so it works from disk and over plain HTTP. */
import { type Chart, drawChart } from "../src/report/chart.ts";
import { printable } from "../src/report/escape.ts";

export function saveFile(name: string, content: Blob | string, type: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The chart as it stands in a report: on white paper, whatever the page looks like. */
export function svgText(chart: Chart): string {
  const svg = drawChart(chart, document) as unknown as SVGElement;
  return printable(new XMLSerializer().serializeToString(svg));
}

export function saveSvg(chart: Chart): void {
  saveFile(`${chart.name}.svg`, svgText(chart), "image/svg+xml");
}

/** At twice the chart's size in pixels. */
export async function savePng(chart: Chart): Promise<void> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(chart))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = chart.width * 2;
  canvas.height = chart.height * 2;
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (blob) saveFile(`${chart.name}.png`, blob, "image/png");
}

/** A field of a CSV file. A leading sign of a formula is defused: names are data, spreadsheets run them. */
function field(value: string | number | undefined): string {
  if (value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvText(rows: readonly (readonly (string | number | undefined)[])[]): string {
  return `${rows.map((row) => row.map(field).join(",")).join("\n")}\n`;
}

/** The values that the chart draws. */
export function saveCsv({ name, rows, columns }: Chart): void {
  const cells = columns.value === undefined ? [] : [columns.value, "state"];
  const head = ["series", "kind", "positions", columns.x, columns.y, "low", "high", ...cells];
  const body = rows.map((row) => [
    ...[row.series, row.kind, row.positions, row.x, row.y, row.low, row.high],
    ...(columns.value === undefined ? [] : [row.value, row.state]),
  ]);
  saveFile(`${name}.csv`, csvText([head, ...body]), "text/csv");
}
