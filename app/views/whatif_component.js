// The what-if view: one heatmap a method over the same rollouts, their difference, the chosen answer with every method's
// cells under its tokens, and the ledger of the chosen token. All data reaches the page as text nodes or numbers, never as
// markup. Python decides domains and words; this draws and moves.

export default (component) => mount(component, create, update);

function create(root) {
  const view = { pending: false, sent: [], tokens: [], panels: [] };
  view.legend = el("div", { class: "legend", "data-testid": "whatif-legend" });
  view.marks = el("div", { class: "marks muted", "data-testid": "whatif-marks" });
  view.hint = el("span", { class: "hint", id: "whatif-hint" });
  view.share = el("button", { class: "share", type: "button", "data-testid": "share-link", text: "Copy link" });
  view.grid = el("div", {
    class: "grid", tabindex: "0", role: "application", "data-testid": "whatif-grid", "aria-describedby": "whatif-hint",
    "aria-label": "advantages of the same tokens under each method",
  });
  view.title = el("h4", { class: "title", "data-testid": "whatif-title" });
  view.list = el("div", { class: "list", tabindex: "0", role: "listbox", "aria-label": "tokens of the chosen rollout" });
  view.words = el("div", { class: "words", "data-testid": "whatif-words" }, [view.list]);
  view.text = el("section", { class: "text", "data-testid": "whatif-text" }, [view.title, view.words]);
  view.why = el("section", { class: "why", "data-testid": "whatif-why" });
  view.tip = el("div", { class: "tip", role: "tooltip", hidden: true });
  view.live = el("div", { class: "quiet", "aria-live": "polite" });
  view.box = el("div", { class: "box" }, [
    el("div", { class: "bar" }, [view.legend, view.hint, view.share]), view.marks, view.grid, view.text, view.why, view.tip, view.live]);
  root.append(view.box);
  for (const node of [view.grid, view.list]) {
    node.addEventListener("keydown", (event) => key(view, event));
    node.addEventListener("pointerleave", () => hide(view));
    node.addEventListener("blur", () => hide(view));
  }
  view.list.addEventListener("pointermove", (event) => {
    const position = event.target.closest?.("[data-position]")?.dataset.position;
    position === undefined ? hide(view) : tip(view, view.row, +position, event.clientX, event.clientY);
  });
  view.list.addEventListener("click", (event) => {
    const token = event.target.closest("[data-position]");
    if (token) choose(view, view.row, +token.dataset.position);
  });
  view.share.addEventListener("click", () => share(view));
  view.observer = new ResizeObserver(() => {
    if (view.data && view.room !== view.grid.clientWidth) { draw(view); gutter(view); }
  });
  view.observer.observe(view.grid);
  return view;
}

const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const bit = (flags, i) => Boolean(flags && (flags[i >> 3] >> (7 - (i & 7))) & 1);
const same = (a, b) => Boolean(a && b && a.row === b.row && a.position === b.position);

function decoded(panel) {
  const codes = new Int16Array(bytes(panel.values).buffer);
  const flags = Object.fromEntries(["dropped", "flipped", "factor"].map((name) => [name, panel[name] ? bytes(panel[name]) : null]));
  return { ...panel, ...flags, value: (i) => (codes[i] * panel.most) / 32767 };
}

function update(view, data) {
  const moved = !view.data || view.data.key !== data.key;
  const echo = view.sent.some((sent) => same(sent, data.selected));
  if (moved || (!view.pending && !echo && !same(data.selected, view.asked))) view.selected = { ...data.selected };
  if (moved) view.sent = [];
  view.asked = data.selected;
  view.data = data;
  view.row = Math.min(view.selected.row, data.rows.length - 1);
  const redrawn = view.mark !== data.mark;
  if (redrawn) view.panels = data.panels.map(decoded);
  view.mark = data.mark;
  let start = 0;
  view.starts = data.rows.map((row) => (start += row.length) - row.length);
  view.width = Math.max(1, ...data.rows.map((row) => row.length));
  for (const name of ["positive", "negative"]) view.box.style.setProperty(`--${name}`, data[name]);
  view.hint.textContent = data.step ? "click or Enter opens the prompt" : "click or arrow keys choose a token";
  view.text.hidden = view.why.hidden = data.step;
  legend(view);
  if (redrawn) draw(view);
  select(view);
}

function legend(view) {
  const { data } = view;
  const ramp = el("span", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${[-1, 0, 1].map((part) => shade(view, part)).join(",")})`;
  const parts = [el("b", { text: "advantage" })];
  parts.push(...(data.reach ? [el("span", { text: data.low }), ramp, el("span", { text: data.high })] : []));
  parts.push(el("span", { class: "muted", text: data.note }));
  view.legend.replaceChildren(...parts);
  const pair = data.panels.find((panel) => panel.pair);
  const marks = [...(data.panels.some((panel) => panel.dropped) ? [["∕", "not in the loss"]] : []), ...(pair ? [["•", "a factor makes the difference"], ["×", "the sign flips"]] : [])];
  view.marks.replaceChildren(
    ...marks.map(([sign, words]) => el("span", {}, [el("b", { text: sign }), ` ${words}`])),
    el("span", {}, [el("b", { text: "mass" }), " loss weight × |advantage|, summed: how much of the update"]));
}

const LABELS = 46, GAP = 18, AXIS = 18;

function draw(view) {
  const { data, panels } = view;
  view.room = view.grid.clientWidth;
  const fit = (columns) => (view.room - GAP * (columns - 1)) / columns - (LABELS + 2);
  const least = (data.step ? 0.6 : 4) * view.width;
  let columns = panels.length;
  while (columns > 1 && fit(columns) < least) columns--;
  if (columns > 3 && panels.length > columns) columns = 3;
  view.cell = Math.min(26, Math.max(data.step ? 0.6 : 1.5, fit(columns) / view.width));
  view.height = data.step ? Math.min(12, Math.max(4, Math.floor(420 / data.rows.length))) : data.rows.length > 16 ? 16 : 22;
  view.grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  view.grid.replaceChildren(...panels.map((panel) => figure(view, panel)));
  ring(view);
}

function figure(view, panel) {
  const { data, cell, height } = view;
  const [width, tall] = [cell * view.width, height * data.rows.length];
  const canvas = el("canvas", { "data-testid": `whatif-canvas-${panel.id}` });
  const axis = el("div", { class: "axis", "aria-hidden": "true" }, ticks(view));
  const mark = el("div", { class: "ring" });
  const plane = el("div", { class: "plane" }, [axis, canvas, mark]);
  plane.style.width = `${width}px`;
  const scroll = el("div", { class: "scroll" }, [plane]);
  const parts = [el("div", { class: "head", title: panel.label }, [badge(panel), el("span", { text: panel.label })])];
  if (panel.note) parts.push(el("div", { class: "note", text: panel.note }));
  parts.push(el("div", { class: "plot" }, [labels(view), scroll]));
  const box = el("figure", { class: "panel", "data-testid": `whatif-panel-${panel.id}` }, parts);
  const scale = sharp(view.box);
  canvas.width = Math.min(32000, width * scale);
  canvas.height = Math.min(32000, tall * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${tall}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(canvas.width / width, 0, 0, canvas.height / tall, 0, 0);
  data.rows.forEach((row, index) => {
    const gap = height > 8 ? 2 : data.rows[index + 1]?.group !== row.group ? 1 : 0;
    for (let t = 0; t < row.length; t++) {
      paint(pen, view, panel, view.starts[index] + t, t * cell, index * height, cell < 6 ? cell : cell - 1, height - gap);
    }
  });
  const at = (event) => {
    const [left, top] = inside(canvas, event.clientX, event.clientY);
    const [row, position] = [Math.floor(top / height), Math.floor(left / cell)];
    return data.rows[row] && position >= 0 && position < data.rows[row].length ? { row, position } : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const place = at(event);
    place ? tip(view, place.row, place.position, event.clientX, event.clientY) : hide(view);
  });
  canvas.addEventListener("pointerleave", () => hide(view));
  canvas.addEventListener("click", (event) => { const place = at(event); if (place) choose(view, place.row, place.position, true); });
  panel.ring = mark;
  panel.scroll = scroll;
  return box;
}

function ticks(view) {
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step * view.cell >= 34) || 2000;
  return Array.from({ length: 1 + Math.floor(view.width / every) }, (_, i) => i * every || 1).filter((nth, i, all) => nth !== all[i - 1]).map((nth) => {
    const tick = el("span", { text: String(nth) }); // tokens are counted from 1
    tick.style.left = `${(nth - 0.5) * view.cell}px`;
    return tick;
  });
}

function labels(view) {
  const { data, height } = view;
  const column = el("div", { class: "labels" });
  column.style.paddingTop = `${AXIS}px`;
  data.rows.forEach((row, index) => {
    const first = index === 0 || data.rows[index - 1].group !== row.group;
    const label = el("button", { class: "label", type: "button", tabindex: "-1", title: row.title, "data-testid": `whatif-row-${index}` });
    if (!data.step) label.append(el("span", { class: "badge", "data-sign": row.sign, text: row.sign }), String(row.rollout));
    else if (first) label.append(el("span", { class: "group", text: `#${row.group}` }));
    label.style.height = `${height}px`;
    label.addEventListener("click", () => choose(view, index, Math.min(view.selected.position, row.length - 1), true));
    column.append(label);
  });
  return column;
}

function badge(panel) { // the method's letter in its colour; two letters where it is a difference
  const letter = el("span", { class: "letter", text: panel.letter });
  if (panel.colour) letter.style.setProperty("--method", panel.colour);
  return letter;
}

function shade(view, part, most = 1) {
  const hue = part < 0 ? view.data.negative : view.data.positive;
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(hue.slice(start, start + 2), 16));
  return `rgba(${red},${green},${blue},${Math.min(1, Math.abs(part)) * most})`;
}

function paint(pen, view, panel, i, x, y, width, height) {
  const part = panel.reach ? panel.value(i) / panel.reach : 0;
  const tall = height > 8;
  pen.fillStyle = "rgba(128,128,128,0.13)";
  pen.fillRect(x, y, width, height);
  if (part) {
    pen.fillStyle = shade(view, part);
    pen.fillRect(x, y, width, height);
  }
  if (bit(panel.dropped, i)) {
    pen.strokeStyle = "rgba(128,128,128,0.65)";
    pen.lineWidth = tall ? 1 : 0.5;
    line(pen, x, y + height, x + width, y);
  } else if (tall && Math.abs(part) >= 0.02) { // the sign without colour: an edge above for plus, below for minus
    const edge = Math.abs(part) > 1.005 ? 4 : 2; // a thick edge: beyond the domain
    pen.fillStyle = edge === 4 ? view.data.text : shade(view, Math.sign(part));
    pen.fillRect(x, part > 0 ? y : y + height - edge, width, edge);
  }
  const [flipped, factor] = [bit(panel.flipped, i), bit(panel.factor, i)];
  if (!flipped && !factor) return;
  pen.fillStyle = pen.strokeStyle = view.data.text;
  if (!tall || width < 4) pen.fillRect(x, flipped ? y : y + height * 0.4, Math.max(0.8, width * 0.7), flipped ? height : height * 0.2);
  else if (flipped) {
    const [cx, cy, r] = [x + width / 2, y + height / 2, Math.min(4, width / 2)];
    for (const [colour, wide] of [[view.data.background, 4], [view.data.text, 1.5]]) { // a halo: seen on every shade
      [pen.strokeStyle, pen.lineWidth] = [colour, wide];
      line(pen, cx - r, cy - r, cx + r, cy + r);
      line(pen, cx - r, cy + r, cx + r, cy - r);
    }
  } else {
    const r = Math.min(2.2, width / 3);
    for (const [colour, wide] of [[view.data.background, r + 1.3], [view.data.text, r]]) {
      pen.fillStyle = colour;
      pen.beginPath();
      pen.arc(x + width / 2, y + height / 2, wide, 0, 7);
      pen.fill();
    }
  }
}

function line(pen, fromX, fromY, toX, toY) {
  pen.beginPath();
  pen.moveTo(fromX, fromY);
  pen.lineTo(toX, toY);
  pen.stroke();
}

function key(view, event) {
  const { rows } = view.data;
  let [row, position] = [view.row, view.selected.position];
  if (event.key === "ArrowRight") position++;
  else if (event.key === "ArrowLeft") position--;
  else if (event.key === "ArrowDown") row++;
  else if (event.key === "ArrowUp") row--;
  else if (event.key === "Home") position = 0;
  else if (event.key === "End") position = rows[row].length - 1;
  else if (event.key !== "Enter" || !view.data.step) { if (event.key === "Escape") hide(view); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  row = Math.min(Math.max(row, 0), rows.length - 1);
  position = Math.min(Math.max(position, 0), rows[row].length - 1);
  choose(view, row, position, event.key === "Enter");
  const near = event.currentTarget === view.list ? view.tokens[position] : view.panels[0].ring;
  const box = near.getBoundingClientRect();
  tip(view, row, position, box.left + box.width / 2, box.bottom);
}

function choose(view, row, position, open = false) { // over a whole step only opening a prompt needs an answer from Python
  view.row = row;
  view.selected = { row, position };
  select(view);
  if (view.data.step && !open) return;
  view.pending = true;
  clearTimeout(view.timer);
  view.timer = setTimeout(() => {
    view.pending = false;
    view.sent = [...view.sent.slice(-20), view.selected];
    const { rollout, group } = view.data.rows[row];
    view.send({ group, rollout, position, key: view.data.key });
  }, 120);
}

function select(view) {
  const row = view.data.rows[view.row];
  if (!row) return;
  view.selected.position = Math.min(view.selected.position, row.length - 1);
  ring(view);
  if (view.data.step) return;
  text(view, row);
  why(view, row);
}

function ring(view) {
  const left = view.selected.position * view.cell;
  for (const panel of view.panels) {
    panel.ring.style.transform = `translate(${left - 1}px, ${AXIS + view.row * view.height - 1}px)`;
    panel.ring.style.width = `${Math.max(4, view.cell + 1)}px`;
    panel.ring.style.height = `${Math.max(6, view.height)}px`;
    const { scrollLeft, clientWidth } = panel.scroll;
    if (left < scrollLeft) panel.scroll.scrollLeft = left - 40;
    else if (left + view.cell > scrollLeft + clientWidth) panel.scroll.scrollLeft = left + 40 - clientWidth;
  }
  for (const column of view.grid.querySelectorAll(".labels")) {
    [...column.children].forEach((label, index) => label.toggleAttribute("data-chosen", index === view.row));
  }
}

function text(view, row) { // the chosen answer: its words, and under each word one cell a method, then the difference
  const drawn = `${view.data.mark} ${view.row}`;
  if (view.drawn !== drawn) {
    view.drawn = drawn;
    view.title.replaceChildren(el("span", { class: "badge", "data-sign": row.sign, text: row.sign }), el("span", { text: row.title }));
    view.tokens = row.tokens.map((token, position) => word(view, token, position));
    view.list.replaceChildren(...view.tokens.flatMap((node, position) => row.breaks.includes(position) ? [node, el("div", { class: "break" })] : [node]));
    gutter(view);
  }
  markChosen(view, 20);
}

function word(view, token, position) {
  const label = el("span", { class: "said" });
  sayToken(label, token);
  const i = view.starts[view.row] + position;
  const cells = view.panels.map((panel) => {
    const part = panel.reach ? panel.value(i) / panel.reach : 0;
    const mark = bit(panel.dropped, i) ? "∕" : bit(panel.flipped, i) ? "×" : bit(panel.factor, i) ? "•" : "";
    const cell = el("span", { class: "cell", "data-panel": panel.id }, mark ? [el("i", { text: mark })] : []);
    if (part) cell.style.backgroundColor = shade(view, part);
    if (Math.abs(part) >= 0.02) cell.dataset.side = part > 0 ? "above" : "below";
    return cell;
  });
  return el("span", {
    class: "token", role: "option", id: `whatif-token-${position}`, "data-position": position, "data-testid": `whatif-token-${position}`,
  }, [label, ...cells]);
}

function gutter(view) { // names the strips at the start of every line of the wrapped text
  view.list.querySelectorAll(".gutter").forEach((node) => node.remove());
  const tops = [...new Set(view.tokens.map((node) => node.offsetTop))];
  view.list.append(...tops.map((top) => {
    const names = view.panels.map((panel) => el("span", { text: panel.letter }));
    const node = el("span", { class: "gutter", "aria-hidden": "true" }, [el("span", { class: "said", text: "" }), ...names]);
    node.style.top = `${top}px`;
    return node;
  }));
}

function why(view, row) { // one ledger a method, for the same token
  const { position } = view.selected;
  const { explain } = view.data;
  const known = explain.row === view.row ? explain.tokens[position - explain.start] : undefined;
  const i = view.starts[view.row] + position;
  const cards = view.panels.filter((panel) => !panel.pair).map((panel, index) => {
    const lines = known ? known[index] : [{ id: "advantage", kind: "total", label: "advantage", value: number(panel.value(i)) }];
    const body = lines.flatMap((each) => {
      const rows = [el("tr", { class: `${each.kind}${each.idle ? " idle" : ""}`, "data-testid": `whatif-${panel.id}-${each.id}`, "data-value": each.raw },
        [el("th", { scope: "row", text: each.label }), el("td", { class: "value", text: each.value })])];
      const how = ["formula", "numbers", "words"].filter((name) => each[name]);
      if (how.length) rows.push(el("tr", { class: `how${each.idle ? " idle" : ""}` }, [el("td", { colspan: 2 }, how.map((name) => el("div", { class: `how-${name}`, text: each[name] })))]));
      return rows;
    });
    return el("div", { class: "card", "data-testid": `whatif-explain-${panel.id}` }, [
      el("h5", {}, [badge(panel), el("span", { text: panel.label })]), el("table", {}, [el("tbody", {}, body)])]);
  });
  const token = row.tokens[position];
  view.why.replaceChildren(
    el("h4", { class: "title" }, [el("span", { text: "Explain " }), el("code", { "data-testid": "whatif-token", text: token }),
      el("span", { class: "muted", "data-testid": "whatif-where", text: `rollout ${row.rollout}, token ${position + 1} of ${row.length}${view.data.about[view.row]?.[position] ?? ""}` })]),
    el("div", { class: "cards", "data-count": cards.length }, cards));
  view.live.textContent = `${token}: ${view.panels.map((panel) => `${panel.letter} ${number(panel.value(i))}`).join(", ")}`;
}

function tip(view, index, position, x, y) {
  const row = view.data.rows[index];
  const i = view.starts[index] + position;
  const where = view.data.step ? `prompt #${row.group}, rollout ${row.rollout}` : `rollout ${row.rollout}`;
  const head = el("div", { class: "tip-title" }, [
    row.tokens ? el("code", { text: row.tokens[position] }) : "", el("span", { text: ` ${row.sign} ${where}, token ${position + 1} of ${row.length}` })]);
  const lines = view.panels.map((panel) => {
    const said = [bit(panel.dropped, i) ? "not in the loss" : "", bit(panel.flipped, i) ? "× sign flips" : "", bit(panel.factor, i) ? "• a factor applies" : ""];
    return el("tr", {}, [el("th", {}, [badge(panel), el("span", { text: panel.label })]), el("td", { text: number(panel.value(i)) }),
      el("td", { class: "muted", text: said.filter(Boolean).join(", ") })]);
  });
  view.tip.replaceChildren(head, el("table", {}, [el("tbody", {}, lines)]));
  showTip(view, x, y);
}

function number(value) {
  const shown = Math.abs(value) >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
  return (value > 0 ? "+" : "") + shown.replaceAll("-", "−");
}
