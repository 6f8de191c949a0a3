/** Reads charts back: SVG structure through the DOM, PNG pixels through the renderer. */
import { Resvg } from "@resvg/resvg-js";
import { parseHTML } from "linkedom";

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
