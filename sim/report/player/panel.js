// Panel: one run. Its map, where its slots are, its timeline, its lists and block table.

const TERM_WORDS = {
  token_states: "tokens", reserved: "reserved", internal: "internal",
  external: "external", cached: "cached", free: "free",
};

class Panel {
  constructor(player, runs, index) {
    this.player = player;
    this.runs = runs;
    this.root = element("article", { class: "kvp-panel" });
    this.show(index);
  }

  show(index) {
    const run = (this.run = this.runs[index]);
    this.index = index;
    this.pool = new Pool(run);
    this.canvas = element("canvas", { tabindex: "0", role: "application",
      "aria-roledescription": "map of the pool",
      "aria-label": `${run.label}: arrow keys move between cells, Enter chooses the owner` });
    this.grid = new Grid(this.canvas, this.pool);
    this.blockTables = new Tables(run, this.pool);
    this.tip = element("div", { class: "kvp-tip", role: "status", hidden: "" });
    this.numbers = element("p", { class: "kvp-numbers" });
    this.bar = element("div", { class: "kvp-bar", role: "img" });
    this.terms = element("dl", { class: "kvp-terms" });
    for (const term of TERMS) {
      this.bar.append(element("span", { class: `kvp-t-${term}` }));
      this.terms.append(element("div", {}, element("dt", {}, element("i", { class: `kvp-t-${term}` }),
        TERM_WORDS[term]), element("dd", {}, element("span"), element("small"))));
    }
    const playhead = element("div", { class: "kvp-playhead" });
    const time = element("canvas", { "aria-hidden": "true" });
    this.timeline = new Timeline(time, playhead, run, this.player.end);
    this.moments = new Moments(this.player, run);
    this.track = element("div", { class: "kvp-time" }, time, ...this.moments.marks, playhead);
    const choose = (request) => this.player.select(request);
    this.running = new Chips("Running", choose);
    this.waiting = new Chips("Waiting", choose);
    this.table = new BlockTable(run);
    this.fill();
    this.listen();
  }

  fill() {
    const { run } = this;
    const size = run.blockSize === null
      ? `${count(run.numSlots)} slots, a square is ${run.cellSlots}`
      : `${plural(Math.floor(run.numSlots / run.blockSize), "block")} of ${plural(run.blockSize, "slot")}`
        + (run.cellSlots > run.blockSize ? `, ${run.cellSlots / run.blockSize} a square` : "");
    const chooser = element("select", { class: "kvp-choose", "aria-label": "run shown here",
      onchange: (event) => this.player.exchange(this, Number(event.target.value)) });
    this.runs.forEach((r, i) => {
      const option = element("option", { value: String(i) }, r.label);
      option.selected = i === this.index;
      chooser.append(option);
    });
    const title = this.runs.length > 1 ? chooser : element("h4", {}, run.label);
    const sampled = run.recordedMoments === null ? "" : element("p", { class: "kvp-sampled" },
      `Sampled: ${count(run.iterations.length)} of ${count(run.recordedMoments)} iterations are kept.`);
    this.root.setAttribute("aria-label", run.label);
    this.map = element("div", { class: "kvp-map" }, this.canvas, this.tip);
    this.root.replaceChildren(
      element("div", { class: "kvp-head" }, title, element("small", {}, size), this.enlarger()),
      element("div", { class: "kvp-view" }, this.numbers, this.map, this.bar, this.terms, this.track,
        this.moments.root, sampled),
      element("div", { class: "kvp-below" },
        element("div", {}, this.running.root, this.waiting.root), this.table.root));
  }

  // A button that gives the whole width to this map of two.
  enlarger() {
    return element("button", { type: "button", class: "kvp-chip kvp-enlarge",
      "aria-pressed": String(this.root.classList.contains("kvp-large")),
      "aria-label": `large: ${this.run.label}`,
      onclick: ({ currentTarget }) => {
        currentTarget.setAttribute("aria-pressed", this.root.classList.toggle("kvp-large"));
        this.player.layout(true);
      } }, "large");
  }

  listen() {
    const { canvas, track } = this;
    canvas.addEventListener("pointermove", (event) => {
      const hit = this.grid.hit(event.offsetX, event.offsetY);
      if (hit) this.showTip(hit); else this.hideTip();
    });
    canvas.addEventListener("pointerleave", () => this.hideTip());
    canvas.addEventListener("click", (event) => {
      const hit = this.grid.hit(event.offsetX, event.offsetY);
      if (hit) this.player.select(this.ownerAt(hit.slot));
    });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("blur", () => { this.setCursor(-1); this.hideTip(); });
    const scrub = (event) => {
      this.player.pause();
      const left = track.getBoundingClientRect().left;
      this.player.seek(this.timeline.timeAt(event.clientX - left));
    };
    track.addEventListener("pointerdown", (event) => {
      track.setPointerCapture(event.pointerId);
      scrub(event);
    });
    track.addEventListener("pointermove", (event) => { if (event.buttons) scrub(event); });
  }

  onKey(event) {
    const { columns, cursor } = this.grid;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key in steps) {
      const next = cursor < 0 ? 0 : cursor + steps[event.key];
      if (next >= 0 && next < this.pool.numCells) this.setCursor(next);
    } else if (event.key === "Enter" && cursor >= 0) {
      this.player.select(this.ownerAt(cursor * this.pool.cellSlots));
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  setCursor(cell) {
    this.grid.setCursor(cell);
    this.grid.draw();
    if (cell >= 0) this.showTip({ cell, slot: cell * this.pool.cellSlots });
  }

  ownerAt(slot) {
    const [[, , e]] = this.pool.pieces(slot, slot + 1);
    if (e === NOTHING) return null;
    const { request, state } = this.pool.describe(e);
    return state === "free" || request < 0 ? null : request;
  }

  showTip({ cell, slot }) {
    this.tipped = { cell, slot };
    this.tip.replaceChildren(...this.tipLines(slot).map((line, i) => element(i ? "div" : "b", {}, line)));
    this.tip.hidden = false;
    const { size, columns } = this.grid;
    const left = (cell % columns) * size, top = Math.floor(cell / columns) * size;
    const room = this.map.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(left + size + 4, room))}px`;
    this.tip.style.top = `${top + size + 4}px`;
  }

  hideTip() {
    if (this.grid.cursor >= 0) return;
    this.tipped = null;
    this.tip.hidden = true;
  }

  tipLines(slot) {
    const { blockSize } = this.run;
    const [[, , e]] = this.pool.pieces(slot, slot + 1);
    const where = (first, end) => `slots ${count(first)}–${count(end - 1)}`;
    const block = (first) => `block ${count(Math.floor(first / blockSize))}, `;
    if (e === NOTHING) {
      if (blockSize === null) return ["free", `slot ${count(slot)}`];
      const first = slot - (slot % blockSize);
      return ["free", block(first) + where(first, Math.min(this.run.numSlots, first + blockSize))];
    }
    const d = this.pool.describe(e);
    if (blockSize !== null && d.end - d.first > blockSize) {
      d.first = slot - (slot % blockSize); // rows that nobody holds may be several blocks
      d.end = Math.min(d.end, d.first + blockSize);
      d.written = d.written ? d.end - d.first : 0;
    }
    const place = (blockSize === null ? "" : block(d.first)) + where(d.first, d.end);
    if (d.state === "free") return ["free", place];
    const rest = d.end - d.first - d.written - d.reserved;
    const owner = d.request < 0 ? d.state : `request ${d.request}`
      + (d.sequence > 0 ? `, sequence ${d.sequence}` : "") + (d.state === "held" ? "" : ` (${d.state})`);
    const lines = [owner, (d.index >= 0 && blockSize !== null ? `logical block ${d.index} in ` : "") + place];
    if (isUnusable(d.state)) return lines;
    lines.push(`${count(d.written)} of ${count(d.end - d.first)} written`
      + (d.reserved ? `, ${count(d.reserved)} reserved` : "") + (rest ? `, ${count(rest)} never filled` : ""));
    lines.push(`reference count ${d.refs}`);
    return lines;
  }

  layout(palette) {
    this.palette = palette;
    const width = this.map.clientWidth;
    this.grid.layout(width, palette);
    this.timeline.layout(width, palette);
    this.moments.layout(width);
    this.running.key = this.waiting.key = "";
  }

  // Show a moment. Lists are rebuilt only if `withLists`: while playing, some times a second.
  update(time, withLists) {
    const { start } = this.run.iterations;
    const at = countUpTo(start, time) - 1;
    const shown = this.run.recordedMoments !== null && at >= 0 ? start[at] : time;
    this.pool.seek(shown);
    const { selected } = this.player;
    this.held = selected === null ? [] : this.blockTables.at(selected, shown);
    this.grid.select(selected, this.held.filter((h) => h.state !== "host").map((h) => h.first));
    this.drawn = this.grid.draw();
    this.timeline.move(time);
    const now = this.now(at, shown);
    TERMS.forEach((term, i) => {
      this.bar.children[i].style.flexGrow = now.terms[term];
    });
    if (!withLists) return now;
    this.now_ = now;
    this.moments.update(this.player.time);
    this.updateWords(now, shown);
    return now;
  }

  updateWords(now, time) {
    const total = this.run.numSlots, { end } = this.player;
    TERMS.forEach((term, i) => {
      const [share, slots] = this.terms.children[i].lastChild.children;
      const text = ` · ${count(now.terms[term])}`;
      if (slots.textContent === text) return;
      share.textContent = percent(now.terms[term], total);
      slots.textContent = text;
    });
    this.bar.setAttribute("aria-label", TERMS.map((t) => `${TERM_WORDS[t]} ${percent(now.terms[t], total)}`).join(", "));
    const used = percent(now.terms.token_states, total);
    const members = phasesAt(this.run, time);
    const { selected } = this.player;
    const running = members.filter((m) => !WAITING_PHASES.has(m.phase));
    const waiting = members.filter((m) => WAITING_PHASES.has(m.phase));
    const numRunning = now.isIdle ? running.length : now.running;
    const numWaiting = now.isIdle ? waiting.length : now.waiting;
    const part = (number, words) => element("span", {}, element("b", {}, number), ` ${words}`);
    this.numbers.replaceChildren(part(used, "of the pool holds tokens"),
      part(count(numRunning), "running"), part(count(numWaiting), "waiting"),
      now.isIdle ? element("em", {}, "idle") : "");
    this.running.update(numRunning, running, selected, this.palette);
    this.waiting.update(numWaiting, waiting, selected, this.palette);
    if (selected === null) this.table.clear();
    else this.table.update(selected, this.held, whereabouts(this.run, selected, time, end));
    if (this.tipped) this.showTip(this.tipped);
  }

  // The iteration that runs at a time; between iterations the terms are counted from the pool.
  now(at, time) {
    const table = this.run.iterations;
    const isIdle = at < 0 || time >= table.start[at] + table.lasts[at];
    if (isIdle) return { isIdle, running: 0, waiting: 0, terms: this.pool.terms(), iteration: at };
    const terms = Object.fromEntries(TERMS.map((term) => [term, table[term][at]]));
    return { isIdle, running: table.running[at], waiting: table.waiting[at], terms, iteration: at };
  }

  sentence() {
    const { running, waiting, terms } = this.now_;
    return `${this.run.label}: ${running} running, ${waiting} waiting, `
      + `${percent(terms.token_states, this.run.numSlots)} of the pool holds tokens.`;
  }
}
