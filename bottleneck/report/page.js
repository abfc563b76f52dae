"use strict";
(() => {
  const MARGIN = 10, ZERO = 1e-3, POINTS = 1200, PRINT_WIDTH = 325;
  const models = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const slider = element("slider"), typed = element("typed"), which = element("matrix");
  const shown = models.map(() => true);
  let factor = 1, printing = false;

  for (const model of models) {
    for (const name of ["raw", "centered"]) {
      if (model[name]) model[name].values = numbers(model[name].values);
    }
  }

  function numbers(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Float64Array(bytes.buffer);
  }

  /** Number of values, in descending order, above a limit. */

  function count(values, limit) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > limit) low = middle + 1; else high = middle;
    }
    return low;
  }

  const whole = (number) => number.toLocaleString("en-US");
  const short = (number) => {
    const rounded = Number(number.toPrecision(4));
    return rounded >= 1e-3 && rounded < 1e5 ? String(rounded) : rounded.toExponential().replace("e+", "e");
  };
  const matrixOf = (model) => model[which.value];

  function showRanks() {
    models.forEach((model, place) => {
      const row = document.querySelector(`#ranks tr[data-model="${place}"]`), matrix = matrixOf(model);
      row.classList.toggle("hidden", !shown[place]);
      if (!matrix) return;
      const limit = factor * matrix.tolerance, above = count(matrix.values, limit);
      const cell = (name, text) => { row.querySelector(`.${name}`).textContent = text; };
      cell("tolerance", `${short(limit)}${limit < matrix.error ? " (below the method’s error)" : ""}`);
      cell("above", `${matrix.residual > limit ? "≥ " : ""}${whole(above)}`);
      cell("reported", matrix.reported);
    });
  }

  function showUnresolved() {
    const list = element("unresolved");
    list.replaceChildren(...models.flatMap((model) => {
      const matrix = matrixOf(model), item = document.createElement("li");
      if (!matrix) {
        item.textContent = `${model.label}: no singular values are saved with its report.`;
        return [item];
      }
      const unknown = matrix.known - count(matrix.values, matrix.error);
      const zero = matrix.known - matrix.values.length;
      if (matrix.values.length === 0) item.textContent = `${model.label}: all singular values are zero.`;
      else if (matrix.residual) {
        item.textContent = `${model.label}: a sketch computed ${whole(matrix.known)} of ${whole(matrix.size)} singular values.`;
      } else if (unknown > zero && matrix.error > ZERO * matrix.tolerance) {
        item.textContent = `${model.label}: ${whole(unknown)} of ${whole(matrix.size)} singular values lie below ` +
          `${short(matrix.error)}, which its method does not resolve; they are not drawn.`;
      } else return [];
      return [item];
    }));
  }

  /* Drawing. */

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches && !printing;
    const light = { text: "#1b1f24", muted: "#57606a", grid: "#e6e8eb", page: "#ffffff", band: "rgba(110,118,129,0.16)" };
    if (printing) return { ...light, dark };
    return {
      dark, text: style.getPropertyValue("--text").trim(), muted: style.getPropertyValue("--muted").trim(),
      grid: style.getPropertyValue("--grid").trim(), page: style.getPropertyValue("--page").trim(),
      band: style.getPropertyValue("--band").trim(),
    };
  }

  const colorOf = (model, look) => (look.dark ? model.dark : model.color);

  /** A name as Plotly shows it: its texts are a kind of HTML. */
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /** At most 2 · POINTS places of 0 … size − 1, at equal ratios and at equal distances. */
  function places(size) {
    const found = new Set();
    for (let step = 0; step <= POINTS; step += 1) {
      found.add(Math.round((size - 1) * step / POINTS));
      found.add(Math.round(Math.exp(Math.log(size) * step / POINTS)) - 1);
    }
    return [...found].sort((one, other) => one - other);
  }

  /** Number of values that are drawn: the method resolves them, and they are not roundoff. */
  const drawn = (matrix) => count(matrix.values, Math.max(matrix.error, ZERO * matrix.tolerance));
  const hasMore = (matrix) => drawn(matrix) < matrix.known && matrix.error > ZERO * matrix.tolerance;

  function trace(model, look, x, y, more) {
    return {
      type: "scatter", mode: x.length < 30 ? "lines+markers" : "lines", name: plain(model.label), x, y,
      line: { color: colorOf(model, look), dash: model.dash, width: model.width }, marker: { size: 5 }, ...more,
    };
  }

  /** The hollow circle where a curve ends because its method resolves no more. */
  function end(model, look, x, y) {
    return {
      type: "scatter", mode: "markers", x: [x], y: [y], hoverinfo: "skip",
      marker: { size: 9, color: look.page, line: { color: colorOf(model, look), width: 2 } },
    };
  }

  function spectrumTraces(look) {
    return models.flatMap((model, place) => {
      const matrix = matrixOf(model);
      if (!shown[place] || !matrix || !drawn(matrix)) return [];
      const kept = places(drawn(matrix)), largest = matrix.values[0];
      const found = [trace(model, look, kept.map((i) => i + 1), kept.map((i) => matrix.values[i] / largest), {
        customdata: kept.map((i) => matrix.values[i]),
        hovertemplate: "<b>%{fullData.name}</b><br>i = %{x:,}<br>σ / σ₁ = %{y:.3g}<br>σ = %{customdata:.4g}<extra></extra>",
      })];
      const last = kept[kept.length - 1];
      return hasMore(matrix) ? [...found, end(model, look, last + 1, matrix.values[last] / largest)] : found;
    });
  }

  function cdfTraces(look) {
    return models.flatMap((model, place) => {
      const matrix = matrixOf(model);
      if (!shown[place] || !matrix || !drawn(matrix)) return [];
      const size = matrix.size, kept = places(drawn(matrix)).reverse(), largest = matrix.values[0];
      const x = kept.map((i) => matrix.values[i] / largest), y = kept.map((i) => 100 * (size - i) / size);
      const below = 100 * (size - drawn(matrix)) / size, start = x[0];
      const ends = hasMore(matrix) ? [end(model, look, start, below)] : [];
      if (!matrix.residual) { x.unshift(hasMore(matrix) ? start : Math.min(start, 1e-10)); y.unshift(below); }
      return [trace(model, look, x, y, {
        mode: "lines", line: { color: colorOf(model, look), dash: model.dash, width: model.width, shape: "hv" },
        hovertemplate: "<b>%{fullData.name}</b><br>σ / σ₁ = %{x:.3g}<br>%{y:.2f} % at most this large<extra></extra>",
      }), ...ends];
    });
  }

  /** Tolerances over σ_1 of the shown models, equal ones once, with the colour of a model that has its own. */
  function tolerances(look) {
    const groups = [];
    models.forEach((model, place) => {
      const matrix = matrixOf(model);
      if (!shown[place] || !matrix || !matrix.values.length) return;
      const value = factor * matrix.tolerance / matrix.values[0];
      const same = groups.find((group) => Math.abs(Math.log(group.value / value)) < 0.02);
      if (same) same.color = look.muted; else groups.push({ value, color: colorOf(model, look) });
    });
    if (groups.length === 1) groups[0].color = look.muted;
    return groups;
  }

  /** Bounds of the rank of the shown models, equal ones once. */
  function bounds() {
    const found = models.map((model, place) => (shown[place] ? matrixOf(model)?.bound : null));
    return [...new Set(found.filter((bound) => bound !== null && bound !== undefined))];
  }

  const boundShapes = (look) => bounds().map((bound) => ({
    type: "line", yref: "paper", y0: 0, y1: 1, x0: bound, x1: bound, line: { color: look.muted, width: 1.2, dash: "8px,3px,2px,3px" },
  }));

  const boundNotes = (look) => bounds().map((bound, place) => ({
    x: Math.log10(bound), y: 1 - 0.25 * (place % 4), yref: "paper", xanchor: "right", yanchor: "top", text: `bound ${whole(bound)}`, textangle: -90,
    showarrow: false, font: { size: 12, color: look.muted },
  }));

  function toleranceShapes(look, across) {
    const [along, value] = across ? ["x", "y"] : ["y", "x"];
    const box = (low, high) => ({
      [`${along}ref`]: "paper", [`${along}0`]: 0, [`${along}1`]: 1, [`${value}0`]: low, [`${value}1`]: high,
    });
    const groups = tolerances(look);
    const bands = groups.length === 1 ? groups.map((group) => ({
      type: "rect", layer: "below", fillcolor: look.band, line: { width: 0 },
      ...box(group.value / MARGIN, group.value * MARGIN),
    })) : [];
    return [...(across ? boundShapes(look) : []), ...bands, ...groups.map((group) => ({
      type: "line", line: { color: group.color, width: 1.5, dash: "6px,4px" }, ...box(group.value, group.value),
    }))];
  }

  function histogramTraces(look) {
    return models.flatMap((model, place) => {
      if (!shown[place] || !model.histogram) return [];
      const { edges, share, pairs } = model.histogram;
      return [trace(model, look, edges, share, {
        mode: "lines",
        hovertemplate: `<b>%{fullData.name}</b><br>%{y:.1f} % of ${whole(pairs)} pairs<br>at most %{x:.3g} nats<extra></extra>`,
      })];
    });
  }

  function meanShapes(look) {
    return models.flatMap((model, place) => (!shown[place] || !model.histogram ? [] : [{
      type: "line", yref: "paper", y0: 0, y1: 1, x0: model.histogram.mean, x1: model.histogram.mean,
      line: { color: colorOf(model, look), width: 1.5, dash: "2px,3px" },
    }]));
  }

  function axis(look, title, more) {
    return {
      title: { text: title, standoff: 8 }, gridcolor: look.grid, linecolor: look.muted, tickcolor: look.muted,
      zeroline: false, showline: true, ticks: "outside", automargin: true, exponentformat: "power", tickfont: { size: 12 }, ...more,
    };
  }

  const log = { type: "log", nticks: 8, tickfont: { size: 10 } };  // Plotly enlarges powers by a quarter
  const charts = {
    spectrum: {
      traces: spectrumTraces, shapes: (look) => toleranceShapes(look, true), notes: boundNotes,
      x: ["index i", log], y: ["singular value σᵢ / σ₁", log],
    },
    cdf: {
      traces: cdfTraces, shapes: (look) => toleranceShapes(look, false),
      x: ["normalized singular value σ / σ₁", log], y: ["values below, %", { range: [0, 101] }],
    },
    histogram: {
      traces: histogramTraces, shapes: meanShapes,
      x: ["KL divergence of a pair, nats", log], y: ["pairs at most this far apart, %", { range: [0, 101] }],
    },
  };

  function layout(id, look) {
    const chart = charts[id];
    return {
      autosize: !printing, ...(printing ? { width: PRINT_WIDTH, height: 250 } : {}),
      margin: { l: 56, r: 12, t: 12, b: 48 }, showlegend: false, hovermode: "closest",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: look.text },
      hoverlabel: { align: "left", font: { size: 13 } },
      xaxis: axis(look, chart.x[0], chart.x[1]), yaxis: axis(look, chart.y[0], chart.y[1]),
      shapes: chart.shapes(look), annotations: chart.notes?.(look) ?? [], uirevision: which.value,
    };
  }

  const config = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };

  function draw(ids = Object.keys(charts)) {
    const look = theme();
    for (const id of ids) {
      if (element(id)) Plotly.react(id, charts[id].traces(look), layout(id, look), config);
    }
    document.querySelectorAll(".swatch line").forEach((line) => {
      const model = models.find((each) => each.color === line.dataset.color);
      line.setAttribute("stroke", model ? colorOf(model, look) : line.dataset.color);
    });
  }

  let waiting = false;
  function moveTolerance() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const look = theme();
      for (const id of ["spectrum", "cdf"]) Plotly.relayout(id, { shapes: charts[id].shapes(look) });
    });
  }

  /* Controls. */

  function setFactor(value, from) {
    factor = value;
    if (from !== slider) slider.value = Math.log10(value);
    if (from !== typed) typed.value = short(value);
    typed.removeAttribute("aria-invalid");
    slider.setAttribute("aria-valuetext", `${short(value)} times the reported tolerance`);
    showRanks();
    moveTolerance();
  }

  slider.addEventListener("input", () => setFactor(10 ** Number(slider.value), slider));
  typed.addEventListener("input", () => {
    const value = Number(typed.value.trim().replace(",", "."));
    if (typed.value.trim() && value > 0 && Number.isFinite(value)) setFactor(value, typed);
    else typed.setAttribute("aria-invalid", "true");
  });
  typed.addEventListener("change", () => { typed.value = short(factor); typed.removeAttribute("aria-invalid"); });
  which.addEventListener("change", () => { showRanks(); showUnresolved(); draw(["spectrum", "cdf"]); });
  document.querySelectorAll("[data-factor]").forEach((button) => button.addEventListener("click", () => {
    const by = Number(button.dataset.factor);
    setFactor(by ? factor * by : 1, button);
  }));
  document.querySelectorAll("[data-toggle]").forEach((box) => box.addEventListener("change", () => {
    shown[Number(box.dataset.toggle)] = box.checked;
    showRanks();
    draw();
  }));

  /** Scale the ranges of a chart's axes about their middle, and shift them by shares of their length. */
  function view(id, scale, right = 0, up = 0) {
    const axes = element(id)._fullLayout;
    if (!scale) return Plotly.relayout(id, { "xaxis.autorange": true, ...(id !== "spectrum" ? { "yaxis.range": [0, 101] } : { "yaxis.autorange": true }) });
    const range = ([low, high], shift) => {
      const middle = (low + high) / 2 + shift * (high - low), half = scale * (high - low) / 2;
      return [middle - half, middle + half];
    };
    return Plotly.relayout(id, { "xaxis.range": range(axes.xaxis.range, right), "yaxis.range": range(axes.yaxis.range, up) });
  }

  const KEYS = {
    "+": [0.5], "=": [0.5], "-": [2], "0": [0], ArrowLeft: [1, -0.1], ArrowRight: [1, 0.1], ArrowUp: [1, 0, 0.1], ArrowDown: [1, 0, -0.1],
  };
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    view(button.dataset.chart, Number(button.dataset.zoom));
  }));
  document.querySelectorAll(".chart").forEach((chart) => chart.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    view(chart.id, ...KEYS[event.key]);
  }));

  /** Say that a table goes on beyond its right edge. */
  const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    target.classList.toggle("cut", target.scrollWidth > target.clientWidth);
  }));
  document.querySelectorAll(".scroll").forEach((each) => widths.observe(each));

  /* Print with light colours, at the paper's width, with all details. */

  const details = [...document.querySelectorAll("details")];
  let closed = [];
  addEventListener("beforeprint", () => {
    printing = true;
    closed = details.filter((each) => !each.open);
    closed.forEach((each) => { each.open = true; });
    draw();
  });
  addEventListener("afterprint", () => {
    printing = false;
    closed.forEach((each) => { each.open = false; });
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());

  showRanks();
  showUnresolved();
  draw();
})();
