// Sums over a pool: what a request holds, and where the slots are when no iteration says so.

// The different events that are visible, in order of their slots.
Pool.prototype.visible = function () {
  const found = [];
  let before = NOTHING;
  for (let u = 0; u < this.last.length; u++) {
    const e = this.last[u];
    if (e !== before && e !== NOTHING) found.push(e);
    before = e;
  }
  return found;
};

// What a request holds, in logical order.
Pool.prototype.held = function (request) {
  const mine = this.visible().filter((e) => this.events.request[e] === request);
  const pieces = [...new Set(mine)].map((e) => this.describe(e)).filter((d) => d.state !== "free");
  return pieces.sort((a, b) => a.sequence - b.sequence || a.index - b.index || a.first - b.first);
};

Pool.prototype.terms = function () {
  const terms = Object.fromEntries(TERMS.map((term) => [term, 0]));
  for (const [from, to, e] of this.pieces(0, this.numSlots)) {
    const size = to - from;
    const d = e === NOTHING ? null : this.describe(e);
    if (d === null || d.state === "free") { terms.free += size; continue; }
    if (isUnusable(d.state)) { terms.external += size; continue; }
    const within = (a, b) => Math.max(0, Math.min(to, b) - Math.max(from, a));
    const written = within(d.first, d.first + d.written);
    const reserved = within(d.first + d.written, d.first + d.written + d.reserved);
    terms[d.state === "cached" ? "cached" : "token_states"] += written;
    terms.reserved += reserved;
    terms.internal += size - written - reserved;
  }
  return terms;
};
