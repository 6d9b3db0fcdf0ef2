// Lists: who runs, who waits, and the block table of one request. All text is set as text, so
// that names from a trace or a YAML file can be anything.

const MAX_CHIPS = 24, MAX_ROWS = 200;
const WAITING_PHASES = new Set(["queued", "preempted", "swapped"]);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// The phase every request is in at a time, in the order in which the phases began. Of several
// sequences of a request the one that has been in its phase for longest counts.
function phasesAt(run, time) {
  const { start, lasts, request, phase } = run.phases;
  const until = countUpTo(start, time);
  const now = new Map();
  for (let i = 0; i < until; i++) {
    if (start[i] + lasts[i] > time && !now.has(request[i])) {
      now.set(request[i], { request: request[i], phase: run.phaseNames[phase[i]] });
    }
  }
  return [...now.values()];
}

// The phase of one request, in words.
function whereabouts(run, request, time, end) {
  const { start, lasts, request: who, phase } = run.phases;
  let first = -1, now = -1, until = 0;
  for (let i = 0; i < start.length; i++) {
    if (who[i] !== request) continue;
    if (first < 0) first = i;
    if (now < 0 && start[i] <= time && start[i] + lasts[i] > time) now = i;
    until = Math.max(until, start[i] + lasts[i]);
  }
  if (first < 0) return "not in this recording";
  if (now >= 0) return `${run.phaseNames[phase[now]]} since ${seconds(start[now], end)}`;
  return start[first] > time ? `arrives at ${seconds(start[first], end)}`
    : `finished at ${seconds(until, end)}`;
}

class Chips {
  constructor(title, onselect) {
    this.key = "";
    this.onselect = onselect;
    this.count = element("b", {}, "0");
    this.box = element("div", { class: "kvp-chips" });
    this.root = element("div", { class: "kvp-list" },
      element("h5", {}, `${title} `, this.count), this.box);
  }

  update(total, members, selected, palette) {
    const key = `${total}|${selected}|${members.map((m) => m.request + m.phase).join()}`;
    if (key === this.key) return;
    this.key = key;
    this.count.textContent = count(total);
    const shown = members.slice(0, MAX_CHIPS);
    this.box.replaceChildren(...shown.map((m) => this.chip(m, selected, palette)));
    const more = members.length - shown.length;
    if (more > 0) this.box.append(element("span", { class: "kvp-more" }, `and ${count(more)} more`));
    if (!members.length) this.box.append(element("span", { class: "kvp-more" }, "none"));
  }

  chip({ request, phase }, selected, palette) {
    const chip = element("button", {
      type: "button",
      class: "kvp-chip",
      "aria-pressed": String(request === selected),
      "aria-label": `request ${request}, ${phase}`,
      title: `request ${request}: ${phase}`,
      onclick: () => this.onselect(request),
    }, element("i", {}), String(request));
    chip.style.setProperty("--kvp-owner", palette.owner(request).solid);
    if (phase === "prefill" || phase === "preempted" || phase === "swapped") {
      chip.append(element("small", {}, ` ${phase}`));
    }
    return chip;
  }
}

class BlockTable {
  constructor(run) {
    this.run = run;
    this.key = "";
    this.root = element("div", { class: "kvp-table" });
    this.clear();
  }

  clear() {
    if (this.key === "none") return;
    this.key = "none";
    this.root.replaceChildren(element("p", { class: "kvp-hint" },
      "Choose a request, in the map or in the lists, to see its block table."));
  }

  update(request, rows, where) {
    const flat = rows.map((r) => [r.sequence, r.index, r.first, r.written, r.refs, r.state].join());
    const key = `${request}|${where}|${flat.join(";")}`;
    if (key === this.key) return;
    this.key = key;
    const many = new Set(rows.map((r) => r.sequence)).size > 1;
    const isBlocks = this.run.blockSize !== null;
    const heads = [...(many ? ["sequence"] : []), ...(isBlocks ? ["logical", "physical"] : ["slots"]),
      isBlocks ? `written of ${this.run.blockSize}` : "written", "shared"];
    const body = rows.slice(0, MAX_ROWS).map((r) => this.row(r, many, isBlocks));
    const shown = rows.length > MAX_ROWS ? `the first ${MAX_ROWS} of ${count(rows.length)}` : "";
    const table = rows.length
      ? element("div", { class: "kvp-scroll", tabindex: "0", role: "region",
        "aria-label": `block table of request ${request}` },
      element("table", {},
        element("thead", {}, element("tr", {}, ...heads.map((h) => element("th", { scope: "col" }, h)))),
        element("tbody", {}, ...body)))
      : element("p", { class: "kvp-hint" }, "holds nothing in this pool");
    this.root.replaceChildren(
      element("h5", {}, `Request ${request} `, element("small", {}, `${where} ${shown}`)), table);
  }

  row(r, many, isBlocks) {
    const size = r.end - r.first, isHost = r.state === "host";
    const meter = element("span", { class: "kvp-meter", "aria-hidden": "true" }, element("i"));
    meter.firstChild.style.width = `${(100 * r.written) / size}%`;
    const cells = isBlocks
      ? [String(r.index), `${isHost ? "host " : ""}${Math.floor(r.first / this.run.blockSize)}`]
      : [`${count(r.first)}–${count(r.end - 1)}`];
    return element("tr", {},
      ...(many ? [element("td", {}, String(r.sequence))] : []),
      ...cells.map((text) => element("td", {}, text)),
      isHost ? element("td", {}, "swapped out")
        : element("td", {}, meter, isBlocks ? count(r.written) : `${count(r.written)} of ${count(size)}`),
      element("td", {}, r.refs > 1 ? `×${r.refs}` : "–"));
  }
}
