// The token view: a group's rollouts as rows of cells, the texts of one or several, and why the chosen token got its advantage.
// All data reaches the page as text nodes or numbers, never as markup. Python decides colours and words; this draws and moves.

export default (component) => mount(component, create, update);

const KEYS = [["← →", "token"], ["↑ ↓", "rollout"], ["Home End", "first, last token"], ["Alt ← →", "step"], ["Alt ↑ ↓", "prompt"]];

function create(root) {
  const view = { pending: false, sent: [], tokens: [], answers: [], whole: new Set() };
  view.legend = el("div", { class: "legend", "data-testid": "token-legend" });
  view.share = el("button", { class: "share", type: "button", "data-testid": "share-link", text: "Copy link" });
  view.labels = el("div", { class: "labels" });
  view.axis = el("div", { class: "axis", "aria-hidden": "true" });
  view.canvas = el("canvas", { "data-testid": "token-canvas" });
  view.ring = el("div", { class: "ring" });
  view.plane = el("div", { class: "plane" }, [view.axis, view.canvas, view.ring]);
  view.scroll = el("div", { class: "scroll" }, [view.plane]);
  view.matrix = el("div", {
    class: "matrix", tabindex: "0", role: "application", "data-testid": "token-matrix", "aria-describedby": "keys",
    "aria-label": "rollouts of this prompt, a row each; columns are positions in the answer",
  }, [view.labels, view.scroll]);
  view.keys = el("div", { class: "keys", id: "keys", "data-testid": "token-keys" }, [
    el("span", { text: "Click a cell, or with the keys:" }),
    ...KEYS.map(([keys, moves]) => el("span", {}, [...keys.split(" ").map((key) => el("kbd", { text: key })), el("span", { text: moves })])),
  ]);
  view.prompt = el("span", { class: "prompt", "data-testid": "prompt" });
  view.words = el("div", { class: "words" });
  view.strips = el("div", { class: "strips", "data-testid": "token-strips" });
  view.text = el("section", { class: "text", "data-testid": "token-text" }, [
    el("p", { class: "asked" }, [el("span", { class: "tag", text: "prompt, not trained" }), view.prompt]), view.words, view.strips]);
  view.why = el("section", { class: "why", "data-testid": "token-why" });
  view.tip = el("div", { class: "tip", role: "tooltip", hidden: true });
  view.live = el("div", { class: "quiet", "aria-live": "polite" });
  view.box = el("div", { class: "box" }, [
    el("div", { class: "bar" }, [view.legend, view.share]), view.matrix, view.keys,
    el("div", { class: "below" }, [view.text, view.why]), view.tip, view.live,
  ]);
  root.append(view.box);
  listen(view);
  view.observer = new ResizeObserver(() => { draw(view); strips(view); });
  view.observer.observe(view.scroll);
  return view;
}

function listen(view) {
  view.matrix.addEventListener("keydown", (event) => key(view, event));
  view.canvas.addEventListener("pointermove", (event) => {
    const cell = at(view, event);
    cell ? tip(view, cell, event.clientX, event.clientY) : hide(view);
  });
  view.canvas.addEventListener("click", (event) => { const cell = at(view, event); if (cell) choose(view, cell.row, cell.position); });
  view.canvas.addEventListener("pointerleave", () => hide(view));
  view.matrix.addEventListener("blur", () => hide(view));
  view.scroll.addEventListener("scroll", () => requestAnimationFrame(() => cells(view)));
  view.share.addEventListener("click", () => share(view));
  listenToTexts(view);
}

function update(view, data) {
  const moved = !view.data || view.data.key !== data.key;
  const echo = view.sent.some((sent) => same(sent, data.selected));
  if (moved || (!view.pending && !echo && !same(data.selected, view.asked))) view.selected = data.selected;
  if (moved) { view.sent = []; view.whole.clear(); }
  view.asked = data.selected;
  view.data = data;
  view.box.style.setProperty("--positive", data.positive);
  view.box.style.setProperty("--negative", data.negative);
  view.box.style.setProperty("--above", data.colour.above);
  view.box.style.setProperty("--below", data.colour.below || "transparent");
  view.high = data.rows.length > 20 ? 16 : 24; // of a row, in pixels
  view.box.style.setProperty("--row", `${view.high}px`);
  view.matrix.toggleAttribute("data-dense", view.high < 24);
  view.width = Math.max(1, ...data.rows.map((row) => row.tokens.length));
  view.row = Math.max(0, data.rows.findIndex((row) => row.rollout === view.selected.rollout));
  legend(view);
  labels(view);
  draw(view);
  select(view);
}

const same = (a, b) => Boolean(a && b && a.rollout === b.rollout && a.position === b.position);

function legend(view) {
  const { colour } = view.data;
  const stops = [colour.below ? shade(view.data, -100) : shade(view.data, 0), shade(view.data, 0), shade(view.data, 100)];
  const ramp = el("span", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${(colour.below ? stops : stops.slice(1)).join(",")})`;
  const parts = [el("b", { text: colour.label })];
  if (colour.low !== null) parts.push(el("span", { text: colour.low }), ramp, el("span", { text: colour.high }));
  if (colour.note) parts.push(el("span", { class: "muted", text: colour.note }));
  parts.push(el("span", { class: "muted doc", text: colour.doc }));
  view.legend.replaceChildren(...parts);
}

function labels(view) {
  const { rows, columns } = view.data;
  const head = el("div", { class: "label head" }, [el("span", { text: "" }), ...columns.map((name) => el("span", { text: name }))]);
  view.labels.replaceChildren(head, ...rows.map((row, index) => {
    const cells = row.cells.map((text) => el("span", { text }));
    const badge = el("span", { class: "badge", "data-sign": row.sign, title: row.title, text: row.sign });
    const label = el("button", { class: "label", type: "button", tabindex: "-1", "data-testid": `rollout-${row.rollout}`, title: row.title },
      [badge, ...cells]);
    label.dataset.kept = row.kept;
    label.addEventListener("click", () => choose(view, index, Math.min(view.selected.position, row.tokens.length - 1)));
    return label;
  }));
}

const AXIS = 22;

function draw(view) {
  const { data } = view;
  if (!data) return;
  const cell = view.cell = Math.min(26, Math.max(3, Math.floor(view.scroll.clientWidth / view.width)));
  view.plane.style.width = `${cell * view.width}px`;
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step * cell >= 34) || 2000;
  const ticks = [];
  for (let position = 0; position < view.width; position += every) {
    const tick = el("span", { text: String(position) });
    tick.style.left = `${position * cell + cell / 2}px`;
    ticks.push(tick);
  }
  view.axis.replaceChildren(...ticks);
  cells(view);
  ring(view);
}

function cells(view) { // the columns that are in sight: a long answer has more than a canvas can hold
  const { data, canvas, cell } = view;
  const [left, room] = [view.scroll.scrollLeft, view.scroll.clientWidth];
  const [width, height] = [Math.min(cell * view.width, room), view.high * data.rows.length];
  const scale = sharp(canvas);
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const [first, last] = [Math.floor(left / cell), Math.ceil((left + width) / cell)];
  data.rows.forEach((row, index) => {
    for (let position = first; position < Math.min(last, row.tokens.length); position++) {
      paint(pen, data, row.shades[position], row.flags[position], position * cell - left, index * view.high + 2, cell < 6 ? cell : cell - 1, view.high - 4);
    }
  });
}

function paint(pen, data, value, flag, x, y, width, height) {
  pen.fillStyle = "rgba(128,128,128,0.13)";
  pen.fillRect(x, y, width, height);
  if (value === null || flag & 1) {
    pen.strokeStyle = "rgba(128,128,128,0.65)";
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, y + height);
    pen.lineTo(x + width, y);
    pen.stroke();
  }
  if (value === null || value === 0) return;
  pen.fillStyle = shade(data, value);
  pen.fillRect(x, y, width, height);
  if (data.colour.below && Math.abs(value) >= 2) { // the sign without colour: an edge above for plus, below for minus
    const edge = Math.abs(value) > 100 ? 4 : 2; // a thick edge: beyond the domain
    pen.fillStyle = Math.abs(value) > 100 ? data.text : value > 0 ? data.colour.above : data.colour.below;
    pen.fillRect(x, value > 0 ? y : y + height - edge, width, edge);
  }
  if (data.colour.cross && value < 0 && width >= 7) {
    pen.strokeStyle = data.text;
    pen.lineWidth = 1.5;
    const [x0, y0, arm] = [x + width / 2, y + height / 2, 3.5];
    pen.beginPath();
    for (const side of [-1, 1]) { pen.moveTo(x0 - arm, y0 - side * arm); pen.lineTo(x0 + arm, y0 + side * arm); }
    pen.stroke();
  }
  if (flag & 2) { pen.fillStyle = data.warning; pen.fillRect(x, y, Math.min(4, width), 4); }
}

function shade(data, value, most = 1) {
  const hue = value < 0 ? data.colour.below : data.colour.above;
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(hue.slice(start, start + 2), 16));
  return `rgba(${red},${green},${blue},${Math.min(1, Math.abs(value) / 100) * most})`;
}

function at(view, event) {
  const [left, top] = inside(view.canvas, event.clientX, event.clientY);
  const [row, position] = [Math.floor(top / view.high), Math.floor((left + view.scroll.scrollLeft) / view.cell)];
  return view.data.rows[row] && position >= 0 && position < view.data.rows[row].tokens.length ? { row, position } : null;
}

function key(view, event) {
  const { rows } = view.data;
  const length = rows[view.row].tokens.length;
  let [row, position] = [view.row, view.selected.position];
  if (event.key === "ArrowRight") position++;
  else if (event.key === "ArrowLeft") position--;
  else if (event.key === "ArrowDown") row++;
  else if (event.key === "ArrowUp") row--;
  else if (event.key === "Home") position = 0;
  else if (event.key === "End") position = length - 1;
  else { if (event.key === "Escape") hide(view); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  row = Math.min(Math.max(row, 0), rows.length - 1);
  position = Math.min(Math.max(position, 0), rows[row].tokens.length - 1);
  choose(view, row, position);
  const inText = event.currentTarget === view.words;
  if (inText) view.list.focus({ preventScroll: true });
  const box = (inText ? view.tokens[position] : view.ring).getBoundingClientRect();
  tip(view, { row, position }, box.left + box.width / 2, box.bottom);
}

function choose(view, row, position) {
  view.row = row;
  view.selected = { rollout: view.data.rows[row].rollout, position };
  select(view);
  view.pending = true;
  clearTimeout(view.timer);
  view.timer = setTimeout(() => {
    view.pending = false;
    view.sent = [...view.sent.slice(-20), view.selected];
    view.send({ ...view.selected, key: view.data.key });
  }, 140);
}

function select(view) {
  const row = view.data.rows[view.row];
  if (!row) return;
  [...view.labels.children].forEach((label, index) => label.toggleAttribute("data-chosen", index === view.row + 1));
  texts(view);
  ring(view);
  strips(view);
  why(view, row);
}

function ring(view) {
  const [left, top] = [view.selected.position * view.cell, AXIS + view.row * view.high];
  view.ring.style.transform = `translate(${left - 1}px, ${top + 1}px)`;
  view.ring.style.width = `${view.cell + 1}px`;
  view.ring.style.height = `${view.high - 2}px`;
  const { scrollLeft, clientWidth } = view.scroll;
  if (left < scrollLeft) view.scroll.scrollLeft = left - 40;
  else if (left + view.cell > scrollLeft + clientWidth) view.scroll.scrollLeft = left + 40 - clientWidth;
  const { scrollTop, clientHeight } = view.matrix;
  if (top < scrollTop + AXIS) view.matrix.scrollTop = top - 2 * view.high;
  else if (top + view.high > scrollTop + clientHeight) view.matrix.scrollTop = top + 2 * view.high - clientHeight;
}

function why(view, row) {
  const { why: known, fields } = view.data;
  const position = view.selected.position;
  const here = known.rollout === row.rollout ? known.tokens[position - known.start] : undefined;
  const token = row.tokens[position];
  view.why.toggleAttribute("data-waiting", !here);
  const lines = here || fields.map((field) => (
    { id: field.id, label: field.label, value: told(field, row.values[field.id]?.[position]), note: "" }));
  const body = lines.map((line) => {
    const value = el("td", { class: "value", "data-testid": `why-${line.id}`, "data-value": line.raw, text: line.value });
    return el("tr", { class: line.kind, "data-testid": `why-row-${line.id}` },
      [el("th", { scope: "row", text: line.label }), value, el("td", { class: "note", text: line.note || "" })]);
  });
  view.why.replaceChildren(
    el("h4", { class: "title" }, [el("span", { text: "Why this token? " }), el("code", { "data-testid": "why-token", text: token })]),
    el("p", { class: "where", "data-testid": "why-where", text: `rollout ${row.rollout}, position ${position} of ${row.tokens.length - 1}` }),
    el("table", { "data-testid": "why-table" }, [el("tbody", {}, body)]));
  view.live.textContent = `${token}, ${lines.filter((line) => line.id === "advantage" || line.id === "probability")
    .map((line) => `${line.label} ${line.value}`).join(", ")}`;
}

function tip(view, cell, x, y) {
  const row = view.data.rows[cell.row];
  const head = el("div", { class: "tip-title" }, [
    el("code", { text: row.tokens[cell.position] }), el("span", { text: ` ${row.sign} rollout ${row.rollout}, position ${cell.position}` })]);
  const known = view.data.fields.filter((field) => row.values[field.id]);
  const lines = known.map((field) => [field.label, told(field, row.values[field.id][cell.position])]);
  if (row.flags[cell.position] & 1) lines.push(["", "dropped: not in the loss"]);
  if (known.length < view.data.fields.length) lines.push(["", "choose it for all its numbers"]);
  view.tip.replaceChildren(head, el("table", {}, [el("tbody", {}, lines.map(([name, value]) =>
    el("tr", {}, [el("th", { text: name }), el("td", { text: value })])))]));
  showTip(view, x, y);
}

function told(field, value) {
  return field.flag && typeof value === "number" ? (value ? "yes" : "no") : number(value, field.unit);
}

function number(value, unit = "") {
  if (value === null || value === undefined) return "not recorded";
  let shown = Math.abs(value) >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
  shown = shown.replaceAll("-", "−");
  return unit ? `${shown}\u00a0${unit}` : shown;
}
