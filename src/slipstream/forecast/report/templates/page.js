"use strict";
// Draws the charts in the colours of the page, and again when those change.

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function config() {
  const words = { labelColor: colour("muted"), titleColor: colour("text") };
  return {
    background: null,
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: {
      ...words,
      domainColor: colour("line"),
      tickColor: colour("line"),
      gridColor: colour("line"),
      labelFontSize: 12,
      titleFontSize: 12,
      titleFontWeight: "normal",
    },
    legend: { ...words, labelColor: colour("text"), labelFontSize: 12, titleFontSize: 12, labelLimit: 320 },
    text: { color: colour("text"), fontSize: 12 },
    rule: { color: colour("muted") },
  };
}

async function draw() {
  const style = config();
  for (const source of document.querySelectorAll("script[data-chart]")) {
    const name = source.dataset.chart;
    const spec = JSON.parse(source.textContent);
    const inputs = document.getElementById(`${name}-inputs`);
    inputs.replaceChildren();
    await vegaEmbed(`#${name}`, spec, {
      renderer: "svg",
      actions: false,
      config: style,
      bind: inputs,
      tooltip: { theme: dark.matches ? "dark" : "light" },
    });
  }
  document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
}

dark.addEventListener("change", draw);
draw();
