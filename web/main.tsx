/** Starts the dashboard: the data, then the page. */
import { render } from "preact";
import { App } from "./app.tsx";
import { start } from "./store.ts";
import "uplot/dist/uPlot.min.css";
import "./style.css";

start();
render(<App />, document.getElementById("app")!);
