// The page of a server: asks it each second what it serves and measures, and asks its models.

const STATE = "page/state";
const JSON_LENGTH = "Inference-Header-Content-Length";
const SVG = "http://www.w3.org/2000/svg";
const SHOWN = 100; // numbers of an output; the response has all
const SPOKEN = 4; // rows whose best label is said
const RESPONSE = 20000; // characters of it that are shown
const EQUAL_DB = 200; // what the compiler says of results that are equal

const element = (id) => document.getElementById(id);
let token = "";
let models = [];
let drawn = ""; // what the cards and the choice were made from
let series = null;
let timer = 0;

// ---- the server -------------------------------------------------------------------------------

function fields(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function look() {
  clearTimeout(timer);
  try {
    const response = await fetch(STATE, { headers: fields(), cache: "no-store" });
    if (response.status === 401) return locked();
    if (!response.ok) throw new Error(`the server says ${response.status}`);
    show(await response.json());
  } catch (error) {
    say("connection", `The server is not reached (${error.message}); it is asked again.`, true);
  }
  clearTimeout(timer); // another look may have begun meanwhile
  timer = setTimeout(look, document.hidden ? 10000 : 1000);
}

function locked() {
  for (const id of ["models", "try", "load"]) element(id).hidden = true;
  const before = element("entry").hidden;
  element("entry").hidden = false;
  say("connection", token ? "The server does not know this token." : "A token is needed.", Boolean(token));
  if (before || token) element("token").focus();
  token = "";
}

function show(state) {
  element("entry").hidden = true;
  for (const id of ["models", "try", "load"]) element(id).hidden = false;
  models = state.models;
  const ready = models.filter((each) => each.ready).length;
  const wait = ready < models.length ? `, ${models.length - ready} not ready` : "";
  say("connection", `${ready} ${ready === 1 ? "version is" : "versions are"} ready${wait}.`, Boolean(wait));
  const now = JSON.stringify(models.map(({ load, ...fixed }) => fixed));
  if (now !== drawn) {
    drawn = now;
    element("cards").replaceChildren(...models.map(card));
    choices();
  }
  models.forEach((each, at) => {
    const cell = element(`load-${at}`);
    if (cell) change(cell, loadWords(each.load));
  });
  series = state.series;
  draw();
  document.documentElement.dataset.seen = "yes";
}

// ---- words ------------------------------------------------------------------------------------

function change(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A live region is read again only if its words are others.
function say(id, text, failed = false) {
  change(element(id), text);
  element(id).classList.toggle("failed", failed);
}

function made(name, content = [], attributes = {}) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...[content].flat());
  return node;
}

function number(value, digits = 3) {
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
}

function ms(value) {
  return `${number(value)} ms`;
}

const title = (model) => `${model.name}, version ${model.version}`;
const tensor = (each) => `${each.name}  ${each.datatype} [${each.shape.join(", ")}]`;

function loadWords(load) {
  if (!load.requests) return "no request in this time";
  const count = `${load.requests.toLocaleString("en")} request${load.requests === 1 ? "" : "s"}`;
  const refused = load.refused ? `, ${load.refused.toLocaleString("en")} refused` : "";
  if (load.p50_ms === null) return `${count}${refused}`;
  return `median ${ms(load.p50_ms)}, 99 of 100 within ${ms(load.p99_ms)}; ${count}${refused}`;
}

function accuracyWords(accuracy) {
  const words = [];
  if (accuracy.top1_loss !== null) {
    const lost = accuracy.top1_loss;
    const change = lost > 0 ? "fewer" : "more";
    words.push(lost === 0
      ? `as many right answers as the model in float32, of ${accuracy.labelled} labels`
      : `${number(Math.abs(lost))} percentage points ${change} right answers than in float32, of ${accuracy.labelled} labels`);
  }
  words.push(accuracy.snr_db >= EQUAL_DB
    ? "results equal those in float32"
    : `results are ${number(accuracy.snr_db)} dB above their error against float32`);
  return words.join("; ");
}

function card(model, at) {
  const share = model.share === null ? "" : `, ${number(100 * model.share)} % of requests`;
  const head = made("h3", [model.name, " ", made("small", `version ${model.version}${share}`)]);
  if (!model.ready) return made("li", [head, made("p", "It is not ready yet.", { class: "failed" })]);
  const pairs = [
    ["Latency, last five minutes", made("dd", loadWords(model.load), { id: `load-${at}` })],
    ["Accuracy, as measured when it was compiled", made("dd", [
      accuracyWords(model.accuracy), " ", made("small", `(${model.accuracy.data})`)])],
    ["Takes", made("dd", [
      ...model.inputs.map((each) => made("code", tensor(each))),
      ...(model.images === null ? [] : [made("small", `${model.images} takes image files, too`)])])],
    ["Gives", made("dd", model.outputs.map((each) => made("code", tensor(each))))],
    ["Runs on", made("dd", `${model.engine}, ${model.precision}: ${model.devices.join(", ")}`)],
  ];
  return made("li", [head, made("dl", pairs.flatMap(([name, value]) => [made("dt", name), value]))]);
}

// ---- a question -------------------------------------------------------------------------------

function chosen() {
  return models.find((each) => each.ready && key(each) === element("model").value);
}

const key = (model) => `${model.name}/${model.version}`;
const takesFiles = (model) => model.images !== null && model.inputs.length === 1;

function choices() {
  const before = element("model").value;
  const ready = models.filter((each) => each.ready);
  element("model").replaceChildren(...ready.map((each) => made("option", title(each), { value: key(each) })));
  if (ready.some((each) => key(each) === before)) element("model").value = before;
  prepare();
}

// What the fields were last made for: what is written in them stays if a model is loaded again.
let prepared = "";

function prepare() {
  const model = chosen();
  element("question").hidden = model === undefined;
  if (model === undefined) return;
  const signature = JSON.stringify([key(model), model.inputs, model.images]);
  if (signature === prepared) return;
  prepared = signature;
  const files = takesFiles(model);
  element("with-files").hidden = !files;
  element("with-json").hidden = files;
  if (files) {
    const [, height, width, channels] = model.inputs[0].shape;
    const colours = channels === 1 ? "grey" : "colour";
    say("files-help", `Of any size, as JPEG or PNG; the model sees the middle, ${width} x ${height} pixels, in ${colours}.`);
  } else {
    element("body").value = template(model);
  }
}

// A valid request of zeros: a line of numbers for each row of the last dimension.
function template(model) {
  const inputs = model.inputs.map((each) => {
    const shape = each.shape.map((size) => (size === -1 ? 1 : size));
    const zero = each.datatype === "BOOL" ? "false" : "0";
    const last = shape.at(-1) ?? 1;
    const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
    const line = `      ${Array(last).fill(zero).join(", ")}`;
    const head = `"name": ${JSON.stringify(each.name)}, "datatype": "${each.datatype}", "shape": [${shape.join(", ")}]`;
    return `    {${head}, "data": [\n${Array(rows).fill(line).join(",\n")}\n    ]}`;
  });
  return `{\n  "inputs": [\n${inputs.join(",\n")}\n  ]\n}\n`;
}

// Files as one binary tensor of BYTES: each has its length before it, four bytes, lowest first.
async function questionOfFiles(model, files) {
  const parts = [];
  let size = 0;
  for (const file of files) {
    const length = new DataView(new ArrayBuffer(4));
    length.setUint32(0, file.size, true);
    parts.push(length.buffer, await file.arrayBuffer());
    size += 4 + file.size;
  }
  const input = {
    name: model.images, datatype: "BYTES", shape: [files.length], parameters: { binary_data_size: size },
  };
  const head = new TextEncoder().encode(JSON.stringify({ inputs: [input] }));
  const headers = { "Content-Type": "application/octet-stream", [JSON_LENGTH]: String(head.length) };
  return { headers, body: new Blob([head, ...parts]) };
}

async function question(model) {
  if (!takesFiles(model)) {
    const body = element("body").value;
    JSON.parse(body); // its error says where the text is wrong
    return { headers: { "Content-Type": "application/json" }, body };
  }
  const files = [...element("files").files];
  if (!files.length) throw new Error("choose an image first");
  return questionOfFiles(model, files);
}

async function ask(event) {
  event.preventDefault();
  const button = element("ask");
  const model = chosen();
  if (model === undefined || button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  element("outputs").replaceChildren();
  element("whole").hidden = true;
  say("answer", "Asking ...");
  try {
    await answer(model, await question(model));
  } catch (error) {
    say("answer", `Not answered: ${error.message}`, true);
  } finally {
    button.setAttribute("aria-disabled", "false");
  }
}

async function answer(model, asked) {
  const path = `v2/models/${encodeURIComponent(model.name)}/versions/${encodeURIComponent(model.version)}/infer`;
  const begin = performance.now();
  const response = await fetch(path, { method: "POST", headers: fields(asked.headers), body: asked.body });
  const text = await response.text();
  const took = performance.now() - begin;
  if (response.status === 401) locked();
  if (!response.ok) throw new Error(refusal(text, response.status));
  const { outputs } = JSON.parse(text);
  const tables = classes(outputs);
  element("outputs").replaceChildren(...(tables ?? outputs.map(output)));
  element("response").textContent = text.length > RESPONSE
    ? `${text.slice(0, RESPONSE)} ... ${text.length - RESPONSE} more characters` : text;
  element("whole").hidden = false;
  say("answer", `${title(model)}, answered in ${ms(took)}, as this page sees it. ${first(outputs)}`);
}

function refusal(text, status) {
  try {
    return JSON.parse(text).error;
  } catch {
    return `the server says ${status}`;
  }
}

// ---- its answer -------------------------------------------------------------------------------

function pair(outputs) {
  const labels = outputs.find((each) => each.name === "labels");
  const scores = outputs.find((each) => each.name === "scores");
  return labels && scores && String(labels.shape) === String(scores.shape) ? { labels, scores } : null;
}

// NaN and what is infinite come as null.
const written = (value, digits) => (typeof value === "number" ? number(value, digits) : String(value));

function first(outputs) {
  const found = pair(outputs);
  if (!found) return `${outputs.map(count).join(", ")}.`;
  const { labels, scores } = found;
  const each = labels.shape.at(-1) ?? 1;
  const rows = each ? labels.data.length / each : 0;
  const words = Array.from({ length: Math.min(rows, SPOKEN) }, (_, row) => {
    const label = labels.data[row * each];
    const what = label === -1 ? "nothing" : `${named(labels, row * each)}, score ${written(scores.data[row * each], 3)}`;
    return rows > 1 ? `row ${row + 1}: ${what}` : what;
  });
  return `Best is ${words.join("; ")}${rows > SPOKEN ? "; and so on" : ""}.`;
}

// The name of a class, "" where the model has none.
const name = (labels, at) => labels.parameters?.classes?.[at] ?? "";

function named(labels, at) {
  const label = `label ${labels.data[at]}`;
  return name(labels, at) ? `${name(labels, at)} (${label})` : label;
}

function count(each) {
  const many = each.data.length;
  return `${each.name} has ${many.toLocaleString("en")} ${many === 1 ? "number" : "numbers"}`;
}

// Labels and their scores as a table for each row; behind them the other outputs.
function classes(outputs) {
  const found = pair(outputs);
  if (!found) return null;
  const { labels, scores } = found;
  const each = labels.shape.at(-1) ?? 1;
  const rows = each ? labels.data.length / each : 0;
  const others = outputs.filter((one) => one !== labels && one !== scores);
  const tables = Array.from({ length: rows }, (_, row) => {
    const lines = Array.from({ length: each }, (_, at) => row * each + at)
      .filter((at) => labels.data[at] !== -1)
      .map((at) => made("tr", [made("th", [name(labels, at), labels.data[at]].join(" ").trim(), { scope: "row" }), made("td", written(scores.data[at], 4))]));
    return made("table", [
      made("caption", rows > 1 ? `Row ${row + 1}` : "Highest score first"),
      made("thead", made("tr", ["Label", "Score"].map((name) => made("th", name, { scope: "col" })))),
      made("tbody", lines)]);
  });
  return [...tables, ...others.map(output)];
}

function output(each) {
  const some = each.data.slice(0, SHOWN).map((value) => written(value, 5));
  const more = each.data.length > SHOWN ? ` ... and ${(each.data.length - SHOWN).toLocaleString("en")} more` : "";
  return made("div", [
    made("h4", tensor(each)),
    made("pre", some.join("  ") + more, { tabindex: "0", role: "region", "aria-label": `Output ${each.name}` })]);
}

let shown = []; // addresses of images that are seen

function preview() {
  shown.forEach((each) => URL.revokeObjectURL(each));
  const files = [...element("files").files].slice(0, 8);
  shown = files.map((each) => URL.createObjectURL(each));
  element("previews").replaceChildren(...shown.map((address, at) => made("img", [], { src: address, alt: files[at].name })));
}

// ---- load -------------------------------------------------------------------------------------

function draw() {
  if (series === null) return;
  const { requests, refused, p50_ms, p99_ms } = series;
  const all = requests.reduce((sum, each) => sum + each, 0);
  const lost = refused.reduce((sum, each) => sum + each, 0);
  const times = p50_ms.filter((each) => each !== null).sort((a, b) => a - b);
  const slow = p99_ms.reduce((most, each) => Math.max(most, each ?? 0), 0);
  const late = requests.slice(-10).reduce((sum, each) => sum + each, 0) / 10;
  const words = all === 0 ? "No request in the last five minutes." :
    `${all.toLocaleString("en")} requests, at most ${Math.max(...requests).toLocaleString("en")} in a second, ${number(late)} a second in the last ten; ` +
    `${lost === 0 ? "none" : lost.toLocaleString("en")} refused.` +
    (times.length ? ` The median was ${ms(times[times.length >> 1])} in the middle of those seconds; 99 of 100 took at most ${ms(slow)} in the worst.` : "");
  change(element("load-summary"), words);
  chart(element("rate-chart"), "Requests a second", [["requests", requests], ["refused", refused]], even);
  chart(element("time-chart"), "Latency in milliseconds", [["p99", p99_ms], ["p50", p50_ms]], decades);
}

function drawnNode(name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

// Scales: the values that have a line, and where a value is, from 0 to 1.

function even(values) {
  const most = Math.max(2, ...values);
  const unit = 10 ** Math.floor(Math.log10(most));
  const end = [1, 2, 5, 10].find((each) => each * unit >= most) * unit;
  return { ticks: [0, end / 2, end], place: (value) => value / end };
}

function decades(values) {
  const low = values.length ? Math.floor(Math.log10(Math.min(...values))) : 0;
  const high = values.length ? Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values)))) : 2;
  const ticks = Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at));
  return { ticks, place: (value) => (Math.log10(value) - low) / (high - low) };
}

function chart(room, name, lines, scale) {
  const width = room.clientWidth;
  const height = room.clientHeight;
  if (!width) return;
  const [left, right, top, bottom] = [48, 8, 10, 22];
  const many = lines[0][1].length;
  const { ticks, place } = scale(lines.flatMap(([, values]) => values.filter((each) => each !== null)));
  const x = (at) => left + (at / (many - 1)) * (width - left - right);
  const y = (value) => height - bottom - place(value) * (height - top - bottom);
  const svg = drawnNode("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}, over five minutes`, "aria-describedby": "load-summary" });
  for (const value of ticks) {
    svg.append(drawnNode("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(drawnNode("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  const minutes = Math.round(many / 60);
  for (let back = minutes; back >= 0; back -= 1) {
    const anchor = back === 0 ? "end" : back === minutes ? "start" : "middle";
    const words = back === minutes ? `-${back} min` : back ? `-${back}` : "now";
    svg.append(drawnNode("text", { x: x((1 - back / minutes) * (many - 1)), y: height - 4, "text-anchor": anchor }, words));
  }
  for (const [kind, values] of lines) svg.append(drawnNode("path", { class: kind, d: path(values, x, y) }));
  room.replaceChildren(svg);
}

// Seconds without a value part the line; one alone is a dot.
function path(values, x, y) {
  let pieces = "";
  let down = false;
  values.forEach((value, at) => {
    if (value !== null) {
      const point = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      pieces += down ? `L${point}` : `M${point}h0`;
    }
    down = value !== null;
  });
  return pieces;
}

// ---- begin ------------------------------------------------------------------------------------

element("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  token = element("token").value.trim();
  element("token").value = "";
  look().then(() => { if (token) element("model").focus(); });
});
element("question").addEventListener("submit", ask);
element("model").addEventListener("change", prepare);
element("files").addEventListener("change", preview);
document.addEventListener("visibilitychange", () => { if (!document.hidden && !element("models").hidden) look(); });
new ResizeObserver(draw).observe(element("rate-chart"));
look();
