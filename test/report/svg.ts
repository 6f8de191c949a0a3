/** Reads charts back: SVG structure through the DOM, PNG pixels through the renderer. */
import { Resvg } from "@resvg/resvg-js";
import { parseHTML } from "linkedom";
import { textWidth } from "../../src/report/chart.ts";

// biome-ignore lint/suspicious/noExplicitAny: the project is compiled without the DOM library
export function parseSvg(svg: string): any {
  return parseHTML(`<!doctype html><html><body>${svg}</body></html>`).document.querySelector("svg");
}

/** The points of a path of straight segments. */
export function pathPoints(d: string): { x: number; y: number }[] {
  return d
    .split(/[MLZ]/)
    .filter((pair) => pair !== "")
    .map((pair) => {
      const [x, y] = pair.split(",").map(Number) as [number, number];
      return { x, y };
    });
}

export interface TextBox {
  readonly text: string;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** Where the texts of one line are that are children of what `selector` finds; widths are estimates on the wide side. */
// biome-ignore lint/suspicious/noExplicitAny: the project is compiled without the DOM library
export function textBoxes(svg: any, selector: string): TextBox[] {
  // biome-ignore lint/suspicious/noExplicitAny: the project is compiled without the DOM library
  const texts: any[] = [...svg.querySelectorAll(selector)].flatMap((group) => [
    ...group.querySelectorAll("text"),
  ]);
  return texts.map((element) => {
    const inherited = (name: string): string => element.closest(`[${name}]`)?.getAttribute(name) ?? "";
    const size = Number.parseFloat(inherited("font-size"));
    const inEms = (at: string) => (at.endsWith("em") ? Number.parseFloat(at) * size : Number(at));
    let x = Number(element.getAttribute("x") ?? 0);
    let baseline = inEms(element.getAttribute("y") ?? "0") + inEms(element.getAttribute("dy") ?? "0");
    for (let node = element; node; node = node.parentElement) {
      const moved = /^translate\(([^,]+),([^)]+)\)$/.exec(node.getAttribute("transform") ?? "");
      x += Number(moved?.[1] ?? 0);
      baseline += Number(moved?.[2] ?? 0);
    }
    const text: string = element.textContent;
    const width = textWidth(text, size);
    const left = { start: x, middle: x - width / 2, end: x - width }[inherited("text-anchor")]!;
    return { text, left, right: left + width, top: baseline - 0.75 * size, bottom: baseline };
  });
}

export function overlap(a: Omit<TextBox, "text">, b: Omit<TextBox, "text">): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

/** RGBA pixels of a PNG. */
export function pngPixels(png: Buffer): { width: number; height: number; pixels: Buffer } {
  const width = png.readUInt32BE(16);
  const height = png.readUInt32BE(20);
  const image = `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="${width}" height="${height}"><image width="${width}" height="${height}" xlink:href="data:image/png;base64,${png.toString("base64")}"/></svg>`;
  return { width, height, pixels: Buffer.from(new Resvg(image).render().pixels) };
}

/** Pixels in a box that are darker than mid-grey. */
export function darkPixels(
  image: { width: number; pixels: Buffer },
  box: { x: number; y: number; width: number; height: number },
): number {
  let dark = 0;
  for (let y = box.y; y < box.y + box.height; y++) {
    for (let x = box.x; x < box.x + box.width; x++) {
      const i = (y * image.width + x) * 4;
      if (image.pixels[i]! + image.pixels[i + 1]! + image.pixels[i + 2]! < 3 * 128) dark++;
    }
  }
  return dark;
}
