// What the lab's own views share: elements without markup, tokens with their spaces shown, a tooltip, a link to the view.

function el(tag, props = {}, children = []) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "text") node.textContent = value;
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) node.append(child); // one by one: a spread of a long answer would be too many arguments
  return node;
}

function sayToken(node, token) { // the marks that stand for spaces, line ends and control characters are paler
  for (const part of token.split(/([␣⏎⇥∅]|⟨[^⟩]*⟩|[\u2400-\u2424])/)) {
    if (part) node.append(/^[␣⏎⇥∅⟨\u2400-\u2424]/.test(part) ? el("i", { text: part }) : part);
  }
}

const zoom = (node) => node.currentCSSZoom || 1; // places on the screen are that many times those of the style

const sharp = (node) => (window.devicePixelRatio || 1) * zoom(node); // of a canvas: its own pixels to one of the style

function inside(node, x, y) { // a place on the screen as one of the style, from the node's corner
  const box = node.getBoundingClientRect();
  return [(x - box.left) / zoom(node), (y - box.top) / zoom(node)];
}

function showTip(view, x, y) { // beside the pointer, inside the view
  view.tip.hidden = false;
  const [width, height] = [view.tip.offsetWidth, view.tip.offsetHeight];
  const below = y + (18 + height) * zoom(view.box) < window.innerHeight;
  const [left, top] = inside(view.box, x, y);
  view.tip.style.left = `${Math.min(Math.max(left + 14, 0), Math.max(0, view.box.clientWidth - width))}px`;
  view.tip.style.top = `${below ? top + 18 : top - height - 14}px`;
}

function hide(view) { view.tip.hidden = true; }

async function share(view) {
  const address = window.location.href;
  try {
    await navigator.clipboard.writeText(address);
    view.share.textContent = "Link copied";
  } catch {
    const field = el("input", { class: "address", readonly: true, "aria-label": "address of this view", value: address });
    view.share.replaceWith(field);
    field.focus();
    field.select();
    field.addEventListener("blur", () => field.replaceWith(view.share), { once: true });
  }
  setTimeout(() => { view.share.textContent = "Copy link"; }, 1800);
}

const views = new WeakMap();

// A view lives as long as its element: `create(root)` once, `update(view, data)` whenever Python sends something.
function mount({ data, parentElement, setTriggerValue }, create, update) {
  let view = views.get(parentElement);
  if (!view) views.set(parentElement, (view = create(parentElement)));
  view.send = (value) => setTriggerValue("selected", value);
  update(view, data);
  return () => { view.observer.disconnect(); clearTimeout(view.timer); views.delete(parentElement); };
}

function markChosen(view, margin) { // the chosen word of the list, told to screen readers and scrolled into its box
  view.tokens.forEach((node, position) => node.setAttribute("aria-selected", position === view.selected.position));
  const chosen = view.tokens[view.selected.position];
  if (!chosen) return;
  view.list.setAttribute("aria-activedescendant", chosen.id);
  const [inner, outer] = [chosen.getBoundingClientRect(), view.words.getBoundingClientRect()];
  if (inner.top < outer.top) view.words.scrollTop -= (outer.top - inner.top) / zoom(chosen) + margin;
  else if (inner.bottom > outer.bottom) view.words.scrollTop += (inner.bottom - outer.bottom) / zoom(chosen) + margin;
}
