// The token view: a group's rollouts as rows of cells, the chosen rollout's text, and why its chosen token got its advantage.
// All data reaches the page as text nodes or numbers, never as markup. Python decides colours and words; this draws and moves.

export default (component) => mount(component, create, update);

function create(root) {
  const view = { pending: false, sent: [], tokens: [] };
  view.legend = el("div", { class: "legend", "data-testid": "token-legend" });
  view.share = el("button", { class: "share", type: "button", "data-testid": "share-link", text: "Copy link" });
  view.labels = el("div", { class: "labels" });
  view.axis = el("div", { class: "axis", "aria-hidden": "true" });
  view.canvas = el("canvas", { "data-testid": "token-canvas" });
  view.ring = el("div", { class: "ring" });
  view.plane = el("div", { class: "plane" }, [view.axis, view.canvas, view.ring]);
  view.scroll = el("div", { class: "scroll" }, [view.plane]);
  view.matrix = el("div", {
    class: "matrix", tabindex: "0", role: "application", "data-testid": "token-matrix", "aria-describedby": "hint",
  }, [view.labels, view.scroll]);
  view.title = el("h4", { class: "title", "data-testid": "rollout-title" });
  view.prompt = el("span", { class: "prompt", "data-testid": "prompt" });
  view.list = el("span", { class: "list", tabindex: "0", role: "listbox", "aria-label": "tokens of the chosen rollout" });
  view.words = el("div", { class: "words" }, [el("p", {}, [view.prompt, view.list])]);
  view.strips = el("div", { class: "strips", "data-testid": "token-strips" });
  view.text = el("section", { class: "text", "data-testid": "token-text" }, [view.title, view.words, view.strips]);
  view.why = el("section", { class: "why", "data-testid": "token-why" });
  view.tip = el("div", { class: "tip", role: "tooltip", hidden: true });
  view.live = el("div", { class: "quiet", "aria-live": "polite" });
  const hint = el("span", { class: "hint", id: "hint", text: "columns: position in the answer · click or arrow keys choose a token" });
  view.box = el("div", { class: "box" }, [
    el("div", { class: "bar" }, [view.legend, hint, view.share]), view.matrix,
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
  view.list.addEventListener("keydown", (event) => key(view, event));
  view.canvas.addEventListener("pointermove", (event) => {
    const cell = at(view, event);
    cell ? tip(view, cell, event.clientX, event.clientY) : hide(view);
  });
  view.canvas.addEventListener("click", (event) => { const cell = at(view, event); if (cell) choose(view, cell.row, cell.position); });
  for (const node of [view.canvas, view.list]) node.addEventListener("pointerleave", () => hide(view));
  for (const node of [view.matrix, view.list]) node.addEventListener("blur", () => hide(view));
  view.list.addEventListener("pointermove", (event) => {
    const position = event.target.closest?.("[data-position]")?.dataset.position;
    position === undefined ? hide(view) : tip(view, { row: view.row, position: +position }, event.clientX, event.clientY);
  });
  view.list.addEventListener("click", (event) => {
    const token = event.target.closest("[data-position]");
    if (token) choose(view, view.row, +token.dataset.position);
  });
  view.share.addEventListener("click", () => share(view));
}

function update(view, data) {
  const moved = !view.data || view.data.key !== data.key;
  const echo = view.sent.some((sent) => same(sent, data.selected));
  if (moved || (!view.pending && !echo && !same(data.selected, view.asked))) view.selected = data.selected;
  if (moved) view.sent = [];
  view.asked = data.selected;
  view.data = data;
  view.box.style.setProperty("--positive", data.positive);
  view.box.style.setProperty("--negative", data.negative);
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

const ROW = 24, AXIS = 22;

function draw(view) {
  const { data, canvas } = view;
  if (!data) return;
  const room = view.scroll.clientWidth;
  const cell = Math.min(26, Math.max(3, Math.floor(room / view.width)));
  const [width, height] = [cell * view.width, ROW * data.rows.length];
  view.cell = cell;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.min(32000, width * scale);
  canvas.height = height * scale;
  canvas.style.width = view.plane.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(canvas.width / width, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  data.rows.forEach((row, index) => {
    for (let position = 0; position < row.tokens.length; position++) {
      paint(pen, data, row.shades[position], row.flags[position], position * cell, index * ROW + 2, cell < 6 ? cell : cell - 1, ROW - 4);
    }
  });
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step * cell >= 34) || 2000;
  const ticks = [];
  for (let position = 0; position < view.width; position += every) {
    const tick = el("span", { text: String(position) });
    tick.style.left = `${position * cell + cell / 2}px`;
    ticks.push(tick);
  }
  view.axis.replaceChildren(...ticks);
  ring(view);
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
  if (flag & 2) { pen.fillStyle = data.warning; pen.fillRect(x, y, Math.min(4, width), 4); }
}

function shade(data, value, most = 1) {
  const hue = value < 0 ? data.colour.below : data.colour.above;
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(hue.slice(start, start + 2), 16));
  return `rgba(${red},${green},${blue},${Math.min(1, Math.abs(value) / 100) * most})`;
}

function at(view, event) {
  const box = view.canvas.getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top) / ROW);
  const position = Math.floor((event.clientX - box.left) / view.cell);
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
  const box = event.currentTarget === view.list
    ? view.tokens[position].getBoundingClientRect() : view.ring.getBoundingClientRect();
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
  text(view, row);
  ring(view);
  strips(view);
  why(view, row);
}

const STRIP = 26;

function strips(view) { // the chosen answer under several fields at once, each on its own scale
  const { data, row: index, selected } = view;
  const row = data?.rows[index];
  if (!row) return;
  const shown = data.strips.filter((strip) => row.values[strip.id]?.some((value) => value !== null));
  view.strips.replaceChildren(...shown.map((strip) => {
    const canvas = el("canvas", { "aria-hidden": "true" });
    canvas.style.maxWidth = `${24 * row.tokens.length}px`;
    const line = el("div", { class: "strip" }, [el("span", { text: strip.label }), canvas, el("span", { class: "scale", text: strip.scale })]);
    canvas.addEventListener("pointermove", (event) => {
      const position = along(canvas, event, row);
      tip(view, { row: index, position }, event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => hide(view));
    canvas.addEventListener("click", (event) => choose(view, index, along(canvas, event, row)));
    return line;
  }));
  [...view.strips.querySelectorAll("canvas")].forEach((canvas, i) => bars(canvas, row, shown[i], data, selected.position));
}

function along(canvas, event, row) {
  const box = canvas.getBoundingClientRect();
  const position = Math.floor(((event.clientX - box.left) / box.width) * row.tokens.length);
  return Math.min(Math.max(position, 0), row.tokens.length - 1);
}

function bars(canvas, row, strip, data, chosen) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  [canvas.width, canvas.height] = [width * scale, STRIP * scale];
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const step = width / row.tokens.length;
  const zero = strip.below ? STRIP / 2 : STRIP;
  pen.fillStyle = "rgba(128,128,128,0.22)";
  pen.fillRect(chosen * step, 0, step, STRIP);
  pen.fillRect(0, zero - 0.5, width, 1);
  row.values[strip.id].forEach((value, position) => {
    if (value === null || !strip.reach) return;
    const part = Math.max(-1, Math.min(1, value / strip.reach));
    const height = Math.abs(part) * zero;
    pen.fillStyle = part < 0 ? strip.below : strip.above;
    pen.fillRect(position * step + 0.5, part > 0 ? zero - height : zero, Math.max(1, step - 1), height);
  });
}

function ring(view) {
  const left = view.selected.position * view.cell;
  view.ring.style.transform = `translate(${left - 1}px, ${AXIS + view.row * ROW + 1}px)`;
  view.ring.style.width = `${view.cell + 1}px`;
  view.ring.style.height = `${ROW - 2}px`;
  const { scrollLeft, clientWidth } = view.scroll;
  if (left < scrollLeft) view.scroll.scrollLeft = left - 40;
  else if (left + view.cell > scrollLeft + clientWidth) view.scroll.scrollLeft = left + 40 - clientWidth;
}

function text(view, row) {
  const drawn = `${view.data.key} ${row.rollout} ${view.data.colour.id} ${view.data.colour.above}`;
  if (view.drawn !== drawn) {
    view.drawn = drawn;
    view.title.replaceChildren(el("span", { class: "badge", "data-sign": row.sign, text: row.sign }), el("span", { text: row.title }));
    view.prompt.textContent = view.data.prompt;
    view.tokens = row.tokens.map((token, position) => span(view, row, token, position));
    view.list.replaceChildren(...view.tokens.flatMap((node, position) => row.breaks.includes(position) ? [node, el("br")] : [node]));
  }
  markChosen(view, 30);
}

function span(view, row, token, position) {
  const value = row.shades[position];
  const node = el("span", { class: "token", role: "option", id: `token-${position}`, "data-position": position, "data-testid": `token-${position}` });
  sayToken(node, token);
  if (value) node.style.backgroundColor = shade(view.data, value, 0.6);
  if (value && view.data.colour.below) node.dataset.side = value > 0 ? "above" : "below";
  if (row.flags[position] & 1) node.dataset.dropped = "";
  return node;
}

function why(view, row) {
  const { why: known, fields } = view.data;
  const position = view.selected.position;
  const here = known.rollout === row.rollout ? known.tokens[position - known.start] : undefined;
  const token = row.tokens[position];
  view.why.toggleAttribute("data-waiting", !here);
  const lines = here || fields.map((field) => (
    { id: field.id, label: field.label, value: number(row.values?.[field.id]?.[position], field.unit), note: "" }));
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
  const lines = view.data.fields.map((field) => {
    const values = row.values?.[field.id];
    return [field.label, values ? number(values[cell.position], field.unit) : null];
  }).filter(([, value]) => value !== null);
  if (row.flags[cell.position] & 1) lines.push(["", "dropped: not in the loss"]);
  if (row.flags[cell.position] & 2) lines.push(["", "clipped"]);
  view.tip.replaceChildren(head, el("table", {}, [el("tbody", {}, lines.map(([name, value]) =>
    el("tr", {}, [el("th", { text: name }), el("td", { text: value })])))]));
  showTip(view, x, y);
}

function number(value, unit = "") {
  if (value === null || value === undefined) return "not recorded";
  let shown = Math.abs(value) >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
  shown = shown.replaceAll("-", "−");
  return unit ? `${shown}\u00a0${unit}` : shown;
}
