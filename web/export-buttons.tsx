/** Buttons that save a chart as SVG, PNG and CSV. */
import type { Chart } from "../src/report/chart.ts";
import { saveCsv, savePng, saveSvg } from "./save.ts";

export function ExportButtons({ chart }: { chart: () => Chart | null }) {
  const save = (as: (chart: Chart) => unknown) => () => {
    const drawn = chart();
    if (drawn) void as(drawn);
  };
  return (
    <p class="exports">
      Save as{" "}
      <button type="button" onClick={save(saveSvg)}>
        SVG
      </button>
      <button type="button" onClick={save(savePng)}>
        PNG
      </button>
      <button type="button" onClick={save(saveCsv)}>
        CSV
      </button>
    </p>
  );
}
