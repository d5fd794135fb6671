// The texts under the matrix: the tokens of the chosen answer or of several, a long answer cut to a window around its chosen
// token, and the chosen answer's numbers as bars.

const DRAWN = 2000, LEAST = 150; // tokens drawn at once over all texts, and the fewest of a text

const WANTED = { chosen: () => false, right: (row) => row.sign === "+", wrong: (row) => row.sign !== "+", all: () => true };

function listenToTexts(view) {
  const place = (event) => {
    const token = event.target.closest?.("[data-position]");
    return token ? { row: +token.closest("[data-row]").dataset.row, position: +token.dataset.position } : null;
  };
  view.words.addEventListener("keydown", (event) => { if (event.target.matches(".list")) key(view, event); });
  view.words.addEventListener("focusout", () => hide(view));
  view.words.addEventListener("pointerleave", () => hide(view));
  view.words.addEventListener("pointermove", (event) => {
    const cell = place(event);
    cell ? tip(view, cell, event.clientX, event.clientY) : hide(view);
  });
  view.words.addEventListener("click", (event) => {
    const cell = place(event);
    if (cell) choose(view, cell.row, cell.position);
    const whole = event.target.closest("[data-whole]");
    if (whole) { view.whole.add(+whole.dataset.whole); texts(view); }
  });
}

function texts(view) {
  const { data } = view;
  const shown = [...data.rows.keys()].filter((index) => index === view.row || WANTED[data.texts](data.rows[index]));
  const room = Math.max(LEAST, Math.floor(DRAWN / shown.length));
  while (view.answers.length < shown.length) view.answers.push(newAnswer());
  view.prompt.textContent = data.prompt;
  shown.forEach((index, i) => text(view, view.answers[i], index, room, shown.length > 1));
  const nodes = view.answers.slice(0, shown.length).map((answer) => answer.node);
  if (nodes.length !== view.words.children.length) view.words.replaceChildren(...nodes);
  view.text.toggleAttribute("data-several", shown.length > 1);
  const chosen = view.answers[shown.indexOf(view.row)];
  [view.tokens, view.list] = [chosen.tokens, chosen.list];
  markChosen(view, 30);
}

function newAnswer() { // where an answer's text is drawn; another answer may take it over
  const list = el("span", { class: "list", tabindex: "0", role: "listbox" });
  const title = el("h4", { class: "title", "data-testid": "rollout-title" });
  const [before, after] = [0, 1].map(() => el("span", { class: "more" }));
  const node = el("article", { class: "answer" }, [title, el("p", {}, [before, list, after])]);
  return { node, title, list, before, after, tokens: [] };
}

function text(view, own, index, room, several) {
  const row = view.data.rows[index];
  const chosen = index === view.row;
  own.node.dataset.row = index;
  own.node.toggleAttribute("data-chosen", chosen && several);
  own.list.tabIndex = chosen ? 0 : -1; // one stop for the Tab key, the arrow keys lead on
  if (!chosen) for (const node of own.list.querySelectorAll("[aria-selected=true]")) node.setAttribute("aria-selected", false);
  const [start, end] = span(view, own, row, room, chosen);
  const drawn = `${view.data.key} ${row.rollout} ${view.data.colour.id} ${view.data.colour.above} ${start} ${end}`;
  if (own.drawn === drawn) return;
  [own.drawn, own.rollout, own.start, own.end] = [drawn, row.rollout, start, end];
  own.title.replaceChildren(el("span", { class: "badge", "data-sign": row.sign, text: row.sign }), el("span", { text: row.title }));
  own.list.setAttribute("aria-label", `tokens of rollout ${row.rollout}`);
  own.tokens = [];
  const nodes = [];
  for (let position = start; position < end; position++) {
    nodes.push(own.tokens[position] = word(view, row, position));
    if (row.breaks.includes(position)) nodes.push(el("br"));
  }
  own.list.replaceChildren();
  for (const node of nodes) own.list.append(node); // one by one: a spread of a long answer would be too many arguments
  more(own.before, row, start, "before");
  more(own.after, row, row.tokens.length - end, "after");
}

function span(view, own, row, room, chosen) { // the positions that are drawn: [start, end)
  const length = row.tokens.length;
  if (length <= room || view.whole.has(row.rollout)) return [0, length];
  const focus = chosen ? view.selected.position : 0;
  const stays = own.rollout === row.rollout && own.end - own.start === room && (!chosen || (own.start <= focus && focus < own.end));
  if (stays) return [own.start, own.end];
  const start = Math.min(Math.max(0, focus - Math.floor(room / 2)), length - room);
  return [start, start + room];
}

function more(node, row, hidden, side) {
  if (!hidden) { node.replaceChildren(); return; }
  const button = el("button", { type: "button", "data-whole": row.rollout, text: `show all ${row.tokens.length}` });
  node.replaceChildren(el("span", { text: `… ${hidden} tokens ${side}, ` }), button);
}

function word(view, row, position) {
  const { colour } = view.data;
  const value = row.shades[position];
  const node = el("span", {
    class: "token", role: "option", id: `token-${row.rollout}-${position}`, "data-position": position, "data-testid": `token-${position}`,
  });
  sayToken(node, row.tokens[position]);
  if (value) node.style.backgroundColor = shade(view.data, value, 0.6);
  if (value && colour.below) node.dataset.side = value > 0 ? "above" : "below";
  if (value < 0 && colour.cross) node.dataset.against = "";
  if (row.flags[position] & 1) node.dataset.dropped = "";
  return node;
}

const STRIP = 26;

function strips(view) { // the chosen answer under several fields at once, each on its own scale
  const { data, row: index, selected } = view;
  const row = data?.rows[index];
  if (!row) return;
  const shown = data.strips.filter((strip) => row.values[strip.id]?.some((value) => value !== null));
  const heading = el("p", { class: "muted", text: `rollout ${row.rollout}, token by token` });
  view.strips.replaceChildren(heading, ...shown.map((strip) => {
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
  const scale = sharp(canvas);
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
