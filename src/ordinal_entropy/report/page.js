"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const NARROW = 560, MOST_BANDS = 5;
  // light -> dark, for the colours of results/figures.py
  const DARK = {
    "#0072B2": "#5cb3ec", "#7a7f87": "#9aa0a8", "#1c1e21": "#e8eaed", "#D55E00": "#f58a45", "#009E73": "#35c99d",
    "#CC79A7": "#e3a0c6",
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const unescaped = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  const coloured = (colour) => (dark.matches && DARK[colour]) || colour;
  const themed = (value) => {
    if (typeof value === "string") return coloured(value);
    if (Array.isArray(value)) return value.map((each) => (typeof each === "object" && each ? themed(each) : each));
    if (!value || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, own]) => [key, /text|name|title|meta/i.test(key) ? own : themed(own)]));
  };
  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // ---- charts

  const axis = (own = {}) => ({
    gridcolor: css("--line"), linecolor: css("--line"), zeroline: false, automargin: true, ticks: "",
    ...own, title: { font: { size: 13 }, standoff: 10, ...(own.title || {}) },
  });

  function chosenPart(trace, chosen) {
    // the points of a trace that belong to methods that are chosen; null if there are none
    const { method, methods } = trace.meta || {};
    if (method !== undefined) return chosen(method) ? trace : null;
    if (!methods) return trace;
    const keep = methods.map((name, k) => (chosen(name) ? k : -1)).filter((k) => k >= 0);
    if (!keep.length) return null;
    const cut = (list) => (Array.isArray(list) ? keep.map((k) => list[k]) : list);
    const bars = trace.error_y && { ...trace.error_y, array: cut(trace.error_y.array), arrayminus: cut(trace.error_y.arrayminus) };
    return { ...trace, x: cut(trace.x), y: cut(trace.y), hovertext: cut(trace.hovertext), ...(bars && { error_y: bars }) };
  }

  function clipped(traces, rows) {
    // rows far beyond the others are cut off, with their number at the edge
    const spans = rows.map((name) => {
      const ends = traces.filter((trace) => trace.meta.method === name).flatMap((t) => t.x.flatMap((x, k) => (
        t.error_x ? [x - t.error_x.arrayminus[k], x + t.error_x.array[k]] : [x])));
      return [Math.min(0, ...ends), Math.max(0, ...ends)];
    });
    const reach = spans.map(([low, high]) => high - low), sorted = [...reach].sort((a, b) => a - b);
    const most = 6 * sorted[Math.floor((sorted.length - 1) / 2)];
    if (rows.length < 3 || !(most > 0) || sorted[sorted.length - 1] <= most) return null;
    const kept = spans.filter((_, row) => reach[row] <= most);
    const low = Math.min(...kept.map((span) => span[0])), high = Math.max(...kept.map((span) => span[1]));
    const room = 0.08 * (high - low);
    const notes = [];
    rows.forEach((name, row) => {
      if (reach[row] <= most) return;
      const mean = traces.find((trace) => trace.meta.method === name && trace.error_x).x[0];
      if (low <= mean && mean <= high) return;
      const right = mean > 0;
      notes.push({
        x: right ? 1 : 0, xref: "paper", xanchor: right ? "right" : "left", y: row, showarrow: false,
        text: (right ? "" : "← ") + (mean > 0 ? "+" : "−") + Math.abs(mean).toPrecision(3) + (right ? " →" : ""),
        font: { color: coloured("#0072B2") }, bgcolor: css("--paper"),
      });
    });
    return { range: [low - room, high + room], notes };
  }

  function draw(plot) {
    const section = data.sections[plot.section];
    const view = section.charts[plot.chart].views[plot.view];
    const chosen = (name) => !section.methods.includes(name) || plot.chosen.has(name);
    const width = plot.clientWidth, narrow = width < NARROW;
    let traces = view.traces.map((trace) => chosenPart(trace, chosen)).filter(Boolean);
    const bands = traces.filter((trace) => trace.meta && trace.meta.band).length;
    if (bands > MOST_BANDS) traces = traces.filter((trace) => !trace.meta.band);
    plot.nextElementSibling.replaceChildren();
    if (traces.every((trace) => trace.meta && trace.meta.key)) {
      Plotly.purge(plot);
      plot.replaceChildren(element("p", { className: "empty", textContent: "No method is chosen." }));
      return;
    }
    if (plot.firstElementChild && plot.firstElementChild.className === "empty") plot.replaceChildren();
    const layout = {
      ...view.layout,
      width, height: narrow ? 320 : 400, showlegend: false, dragmode: narrow ? false : "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
      font: { family: css("--sans"), size: 13, color: css("--ink") },
      hoverlabel: { bgcolor: css("--wash"), bordercolor: css("--line"), font: { color: css("--ink") }, align: "left" },
      margin: { l: 8, r: 12, t: 10, b: 8 }, xaxis: axis(view.layout.xaxis), yaxis: axis(view.layout.yaxis),
    };
    const rows = view.layout.meta && view.layout.meta.rows && view.layout.meta.rows.filter(chosen);
    if (rows) {
      traces = traces.map((trace) => {
        const row = rows.indexOf(trace.meta.method);
        return { ...trace, y: trace.x.map(() => row + trace.meta.offset) };
      });
      layout.annotations = [];
      layout.height = 70 + rows.length * (narrow ? 54 : 40);
      layout.yaxis = axis({
        tickvals: rows.map((_, row) => row), ticktext: narrow ? rows.map(() => "") : rows.map(escaped),
        range: [rows.length - 0.45, narrow ? -0.8 : -0.55], showgrid: false, fixedrange: true,
      });
      if (narrow) {
        layout.annotations = rows.map((name, row) => ({
          text: escaped(name), x: 0, xref: "paper", xanchor: "left", y: row - 0.32, yanchor: "bottom", yshift: -4,
          showarrow: false, font: { size: 12 },
        }));
      }
      const cut = view.layout.meta.clip && clipped(traces, rows);
      if (cut) {
        layout.xaxis.range = cut.range;
        layout.annotations.push(...cut.notes);
      }
    }
    const { meta, ...rest } = themed(layout);
    const config = { displayModeBar: false, responsive: false, showTips: false };
    Plotly.react(plot, themed(traces.map(({ meta, ...trace }) => trace)), rest, config);
    plot.nextElementSibling.append(...legend(traces));
  }

  function legend(traces) {
    const seen = new Map();
    for (const trace of traces) {
      if ((trace.meta && trace.meta.band) || !trace.name || seen.has(trace.name)) continue;
      seen.set(trace.name, trace);
    }
    return seen.size < 2 && !traces.some((t) => t.meta && t.meta.row) ? [] : [...seen].map(([name, trace]) => element("span", {}, key(trace), unescaped(name)));
  }

  function key(trace) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", 28);
    svg.setAttribute("height", 12);
    const part = (tag, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
      Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
      svg.append(made);
    };
    const marker = trace.marker || {}, hollow = marker.color === "rgba(0,0,0,0)";
    const colour = coloured(hollow ? marker.line.color : marker.color);
    const dashes = { dash: "7 4", dashdot: "7 3 2 3", dot: "2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
    if ((trace.mode || "").includes("lines") || trace.error_x) {
      part("line", { x1: 1, x2: 27, y1: 6, y2: 6, stroke: colour, "stroke-width": 2, "stroke-dasharray": (trace.line && dashes[trace.line.dash]) || "" });
    }
    if (!(trace.mode || "").includes("markers")) return svg;
    if (marker.symbol === "star") {
      part("path", { d: "M14 0 L15.6 4 L20 4.4 L16.7 7.2 L17.7 11.6 L14 9.3 L10.3 11.6 L11.3 7.2 L8 4.4 L12.4 4 Z", fill: colour });
    } else {
      part("circle", { cx: 14, cy: 6, r: 4, fill: hollow ? "none" : colour, stroke: colour, "stroke-width": 1.4 });
    }
    return svg;
  }

  // ---- clouds of features

  const STOPS = ["440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "e8d722"].map((hex) =>
    [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
  const shade = (t) => {
    const at = Math.min(Math.max(t, 0), 1) * (STOPS.length - 1), k = Math.min(Math.floor(at), STOPS.length - 2);
    return STOPS[k].map((low, c) => Math.round(low + (STOPS[k + 1][c] - low) * (at - k)));
  };
  const SHADES = Array.from({ length: 256 }, (_, k) => shade(k / 255));
  const decoded = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const shown = (value) => (value === null ? "no number" : Number(value.toPrecision(4)).toLocaleString("en"));

  function cloudIn(root, cloud, isChosen) {
    const state = { layout: "sphere", epoch: cloud.epochs.length - 1, point: null, yaw: 0.5, pitch: 0.35, playing: null };
    const [low, high] = cloud.range;
    const tint = cloud.targets.map((y) => (y === null ? 0 : Math.round((255 * (y - low)) / (high - low || 1))));
    const panels = cloud.methods.map((name, k) => {
      const canvas = element("canvas", { tabIndex: 0 });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `Features of ${name}; arrow keys turn the sphere. Numbers are in the table below.`);
      const figure = element("figure", {}, canvas, element("figcaption", { textContent: name }));
      return { name, k, canvas, figure, spots: [] };
    });
    root.querySelector(".panels").append(...panels.map((panel) => panel.figure));
    const bar = root.querySelector(".colours");
    bar.firstElementChild.textContent = `target ${shown(low)}`;
    bar.lastElementChild.textContent = shown(high);
    const strip = bar.querySelector("canvas").getContext("2d");
    SHADES.forEach(([r, g, b], k) => { strip.fillStyle = `rgb(${r},${g},${b})`; strip.fillRect(k, 0, 1, 1); });
    const epochInput = root.querySelector("[name=epoch]"), pointInput = root.querySelector("[name=point]");
    const play = root.querySelector("[data-play]");

    function spots(panel, middle, radius) {
      const list = cloud[state.layout][panel.k][state.epoch], found = [];
      const [sy, cy, sp, cp] = [Math.sin(state.yaw), Math.cos(state.yaw), Math.sin(state.pitch), Math.cos(state.pitch)];
      for (let i = 0; i < cloud.rows.length; i++) {
        if (state.layout === "flat") {
          found.push([middle + (radius * list[2 * i]) / 1000, middle - (radius * list[2 * i + 1]) / 1000, 1, i]);
          continue;
        }
        const x = list[3 * i] / 1000, y = list[3 * i + 1] / 1000, z = list[3 * i + 2] / 1000;
        const across = cy * x + sy * z, away = -sy * x + cy * z;
        found.push([middle + radius * across, middle - radius * (cp * y - sp * away), sp * y + cp * away, i]);
      }
      return found;
    }

    function paint(panel) {
      const canvas = panel.canvas, size = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
      if (!size) return;
      if (canvas.width !== Math.round(size * ratio)) canvas.width = canvas.height = Math.round(size * ratio);
      const pen = canvas.getContext("2d"), middle = size / 2, radius = 0.44 * size;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, size, size);
      panel.spots = spots(panel, middle, radius);
      if (state.layout === "sphere") {
        pen.strokeStyle = css("--line");
        pen.lineWidth = 1.5;
        pen.beginPath();
        pen.arc(middle, middle, radius, 0, 2 * Math.PI);
        pen.stroke();
      }
      pen.strokeStyle = "rgba(255,255,255,0.4)";
      pen.lineWidth = 0.8;
      for (const [x, y, front, i] of [...panel.spots].sort((a, b) => a[2] - b[2])) {
        const [r, g, b] = SHADES[tint[i]];
        pen.globalAlpha = front < 0 ? 0.28 : 0.9;
        pen.fillStyle = `rgb(${r},${g},${b})`;
        pen.beginPath();
        pen.arc(x, y, size < 200 ? 2.2 : 2.9, 0, 2 * Math.PI);
        pen.fill();
        if (dark.matches) pen.stroke(); // the darkest of the colours would vanish
      }
      pen.globalAlpha = 1;
      if (state.point !== null) {
        const [x, y] = panel.spots[state.point];
        pen.strokeStyle = css("--ink");
        pen.lineWidth = 2;
        pen.beginPath();
        pen.arc(x, y, 7, 0, 2 * Math.PI);
        pen.stroke();
      }
    }

    function map(title, levels, picture) {
      const { height, width, cells, places, size } = cloud.grid;
      const canvas = element("canvas", { width: picture ? picture.naturalWidth : width * 4, height: picture ? picture.naturalHeight : height * 4 });
      const pen = canvas.getContext("2d");
      if (picture) pen.drawImage(picture, 0, 0);
      else cells.forEach((cell, k) => {
        if (levels[k] === 255) return;
        const [r, g, b] = SHADES[levels[k]];
        pen.fillStyle = `rgb(${r},${g},${b})`;
        pen.fillRect(4 * (cell % width), 4 * Math.floor(cell / width), 4, 4);
      });
      const [down, across] = places[state.point];
      const x = ((across + 0.5) / size[1]) * canvas.width, y = ((down + 0.5) / size[0]) * canvas.height, r = canvas.width / 22;
      for (const [colour, line] of [["#000", r / 1.6], ["#fff", r / 3.5]]) {
        pen.strokeStyle = colour;
        pen.lineWidth = line;
        pen.beginPath();
        pen.arc(x, y, r, 0, 2 * Math.PI);
        pen.stroke();
      }
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${title}, with the point marked`);
      return element("figure", {}, canvas, element("figcaption", { textContent: title }));
    }

    function square(sheet, row) {
      const columns = cloud.sheet.columns, side = sheet.naturalWidth / columns;
      const canvas = element("canvas", { width: side, height: side });
      canvas.getContext("2d").drawImage(sheet, side * (row % columns), side * Math.floor(row / columns), side, side, 0, 0, side, side);
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `the image of row ${row}`);
      return element("figure", {}, canvas, element("figcaption", { textContent: "the image" }));
    }

    function inspect() {
      const i = state.point;
      if (i === null) return;
      const place = cloud.grid ? `, at row ${cloud.grid.places[i][0]}, column ${cloud.grid.places[i][1]} of the image` : "";
      const lines = [`Row ${cloud.rows[i].toLocaleString("en")} of ${cloud.total.toLocaleString("en")} (${cloud.what})${place}: target ${shown(cloud.targets[i])}.`];
      const drawn = panels.filter((panel) => isChosen(panel.name));
      if (cloud.predictions) lines.push(`Predicted after ${cloud.time} ` + cloud.epochs[state.epoch] + ": " + drawn.map((p) => `${p.name} ${shown(cloud.predictions[p.k][state.epoch][i])}`).join(", ") + ".");
      root.querySelector(".inspector p").textContent = lines.join("\n");
      pointInput.value = i;
      pointInput.nextElementSibling.textContent = `row ${cloud.rows[i]}`;
      if (cloud.picture) root.querySelector(".maps").replaceChildren(square(cloud.picture, cloud.rows[i]));
      if (!cloud.grid) return;
      const maps = [];
      if (cloud.grid.picture) maps.push(map("the image", null, cloud.grid.picture));
      maps.push(map("target", decoded(cloud.grid.targets)));
      if (cloud.grid.predictions) maps.push(...drawn.map((p) => map(p.name, decoded(cloud.grid.predictions[p.k][state.epoch]))));
      root.querySelector(".maps").replaceChildren(...maps);
    }

    function update() {
      panels.forEach((panel) => { panel.figure.hidden = !isChosen(panel.name); });
      panels.filter((panel) => !panel.figure.hidden).forEach(paint);
      if (epochInput) {
        const text = `${cloud.epochs[state.epoch]} of ${cloud.epochs[cloud.epochs.length - 1]}`;
        epochInput.nextElementSibling.textContent = text;
        epochInput.setAttribute("aria-valuetext", `${cloud.time} ${text}`);
      }
      inspect();
    }

    function stop() {
      clearInterval(state.playing);
      state.playing = null;
      if (play) play.textContent = "Play";
    }

    function turn(yaw, pitch) {
      state.yaw += yaw;
      state.pitch = Math.max(-1.5, Math.min(1.5, state.pitch + pitch));
      panels.filter((panel) => !panel.figure.hidden).forEach(paint);
    }

    for (const panel of panels) {
      let from = null;
      panel.canvas.addEventListener("pointerdown", (event) => {
        from = [event.clientX, event.clientY];
        panel.canvas.setPointerCapture(event.pointerId);
      });
      panel.canvas.addEventListener("pointermove", (event) => {
        if (from && state.layout === "sphere") {
          turn((event.clientX - from[0]) / 120, (event.clientY - from[1]) / 120);
          from = [event.clientX, event.clientY];
          return;
        }
        const box = panel.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
        let best = null, least = 14 ** 2;
        for (const [px, py, front, i] of panel.spots) {
          const distance = (px - x) ** 2 + (py - y) ** 2 + (front < 0 ? 60 : 0);
          if (distance < least) [best, least] = [i, distance];
        }
        if (best !== null && best !== state.point) {
          state.point = best;
          update();
        }
      });
      for (const end of ["pointerup", "pointercancel"]) panel.canvas.addEventListener(end, () => { from = null; });
      panel.canvas.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
        if (!step || state.layout !== "sphere") return;
        event.preventDefault();
        turn(...step);
      });
    }
    root.querySelectorAll(".views input").forEach((input) => input.addEventListener("change", () => { state.layout = input.value; update(); }));
    pointInput.addEventListener("input", () => { state.point = Number(pointInput.value); update(); });
    if (epochInput) {
      epochInput.addEventListener("input", () => { stop(); state.epoch = Number(epochInput.value); update(); });
      play.addEventListener("click", () => {
        if (state.playing) return stop();
        play.textContent = "Stop";
        state.playing = setInterval(() => {
          state.epoch = (state.epoch + 1) % cloud.epochs.length;
          epochInput.value = state.epoch;
          update();
        }, 900);
      });
    }
    if (cloud.grid && cloud.grid.thumbnail) {
      const picture = new Image();
      picture.onload = () => { cloud.grid.picture = picture; inspect(); };
      picture.src = cloud.grid.thumbnail;
    }
    if (cloud.sheet) {
      const sheet = new Image();
      sheet.onload = () => { cloud.picture = sheet; inspect(); };
      sheet.src = cloud.sheet.picture;
    }
    return update;
  }

  // ---- the page

  const redraw = []; // one function a figure, that draws it as things are now
  const waiting = new Map(); // figures that were not yet near the screen
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) begin(entry.target);
  }, { rootMargin: "800px" });
  function begin(place) {
    const make = waiting.get(place);
    if (!make) return;
    waiting.delete(place);
    near.unobserve(place);
    const own = make();
    redraw.push(own);
    own();
  }
  const all = () => redraw.forEach((own) => own());

  document.querySelectorAll("[data-section]").forEach((root) => {
    const number = Number(root.dataset.section), section = data.sections[number];
    const chosen = new Set(section.methods);
    const swatches = () => root.querySelectorAll(".methods .swatch").forEach((swatch, k) => swatch.style.setProperty("--swatch", coloured(section.colours[k])));
    swatches();
    dark.addEventListener("change", swatches);
    const own = [];
    const later = (place, make) => {
      waiting.set(place, () => { const made = make(); own.push(made); return made; });
      near.observe(place);
    };
    root.querySelectorAll(".drawing").forEach((plot) => {
      Object.assign(plot, { section: number, chart: Number(plot.dataset.chart), view: 0, chosen });
      later(plot, () => () => draw(plot));
      plot.closest(".chart").querySelectorAll(".views input").forEach((input) => input.addEventListener("change", () => {
        plot.view = Number(input.value);
        draw(plot);
      }));
    });
    const cloud = root.querySelector(".cloud");
    if (cloud) later(cloud, () => cloudIn(cloud, section.cloud, (name) => chosen.has(name) || !section.methods.includes(name)));
    const boxes = [...root.querySelectorAll(".methods input")];
    const choose = () => {
      chosen.clear();
      boxes.forEach((box) => { if (box.checked) chosen.add(section.methods[Number(box.value)]); });
      own.forEach((each) => each());
    };
    boxes.forEach((box) => box.addEventListener("change", choose));
    root.querySelectorAll("[data-choose]").forEach((button) => button.addEventListener("click", () => {
      boxes.forEach((box) => { box.checked = button.dataset.choose === "all"; });
      choose();
    }));
  });

  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => {
    const code = button.parentElement.querySelector("code"), range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const done = navigator.clipboard ? navigator.clipboard.writeText(code.textContent) : Promise.reject();
    done.then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Selected"; });
  }));

  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(all, 120); });
  dark.addEventListener("change", all);
  addEventListener("beforeprint", () => {
    [...waiting.keys()].forEach(begin);
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
  });
  document.documentElement.dataset.ready = "yes";
})();
