// Pool: what is where at a moment. For every unit of slots it keeps the event that spoke of it
// last; all else follows from that event. Going forward applies events one by one; going back, or
// far, starts from the nearest of the snapshots that were taken when the run was loaded.
// Nothing here draws: `takeDirty` says which cells of the grid look different than before.

const SNAPSHOT_BYTES = 32e6;
const NOTHING = -1;

class Pool {
  constructor(run) {
    this.run = run;
    this.events = run.events;
    this.unit = run.unit;
    this.cellSlots = run.cellSlots;
    this.numSlots = run.numSlots;
    this.numCells = Math.ceil(run.numSlots / run.cellSlots);
    const units = Math.ceil(run.numSlots / run.unit);
    this.last = new Int32Array(units).fill(NOTHING);
    this.applied = 0;
    this.isDirty = new Uint8Array(this.numCells);
    this.dirty = [];
    this.takeSnapshots(units);
  }

  // A snapshot every `every` events, or as many as fit into memory.
  takeSnapshots(units, every = 256) {
    const count = this.events.length;
    this.every = Math.max(every, Math.ceil((count * units * 4) / SNAPSHOT_BYTES));
    this.snapshots = [];
    for (let e = 0; e < count; e++) {
      if (e % this.every === 0) this.snapshots.push(this.last.slice());
      this.cover(e);
    }
    if (count % this.every === 0) this.snapshots.push(this.last.slice());
    this.last.fill(NOTHING);
  }

  cover(e) {
    const start = this.events.start[e];
    this.last.fill(e, start, start + this.events.count[e]);
  }

  // Move to the state at `time`, in nanoseconds: all events up to and at it have happened.
  seek(time) {
    const target = countUpTo(this.events.time, time);
    const ahead = target - this.applied;
    if (ahead >= 0 && ahead <= this.every) {
      while (this.applied < target) this.apply(this.applied++);
    } else {
      this.jump(target);
    }
    return ahead !== 0;
  }

  jump(target) {
    const before = this.last;
    this.last = this.spare || new Int32Array(before.length);
    this.spare = before;
    const snapshot = Math.floor(target / this.every);
    this.last.set(this.snapshots[snapshot]);
    for (let e = snapshot * this.every; e < target; e++) this.cover(e);
    this.applied = target;
    for (let cell = 0; cell < this.numCells; cell++) if (this.differs(cell, before)) this.mark(cell);
  }

  // Whether a cell is not what it was: the first unit that differs says so.
  differs(cell, before) {
    const { last, unit, cellSlots } = this;
    const end = Math.min(last.length, Math.ceil(((cell + 1) * cellSlots) / unit));
    for (let u = Math.floor((cell * cellSlots) / unit); u < end; u++) if (before[u] !== last[u]) return true;
    return false;
  }

  apply(e) {
    const { start, count, written, reserved } = this.events;
    const from = start[e], to = from + count[e];
    const old = this.last[from];
    let isSamePiece = old !== NOTHING && this.isSamePiece(old, e);
    for (let u = from; u < to; u++) {
      if (this.last[u] !== old) isSamePiece = false;
      this.last[u] = e;
    }
    const first = from * this.unit;
    if (!isSamePiece) {
      this.markSlots(first, to * this.unit);
      return;
    }
    this.markBetween(first + written[old], first + written[e]);
    this.markBetween(first + written[old] + reserved[old], first + written[e] + reserved[e]);
  }

  // Whether two events differ at most in how much is written and reserved.
  isSamePiece(a, b) {
    const { start, count, request, sequence, index, refs, state } = this.events;
    return start[a] === start[b] && count[a] === count[b] && request[a] === request[b]
      && sequence[a] === sequence[b] && index[a] === index[b] && refs[a] === refs[b]
      && state[a] === state[b];
  }

  markBetween(a, b) {
    if (a !== b) this.markSlots(Math.min(a, b) - 1, Math.max(a, b) + 1);
  }

  markSlots(from, to) {
    const first = Math.max(0, Math.floor(from / this.cellSlots));
    const last = Math.min(this.numCells, Math.ceil(to / this.cellSlots));
    for (let cell = first; cell < last; cell++) this.mark(cell);
  }

  mark(cell) {
    if (this.isDirty[cell]) return;
    this.isDirty[cell] = 1;
    this.dirty.push(cell);
  }

  markAll() {
    this.markSlots(0, this.numSlots);
  }

  takeDirty() {
    const cells = this.dirty;
    for (const cell of cells) this.isDirty[cell] = 0;
    this.dirty = [];
    return cells;
  }

  // The pieces of a stretch of slots: [from, to, event], where event may be NOTHING.
  pieces(from, to) {
    const found = [], { last, unit } = this, end = Math.ceil(to / unit);
    for (let u = Math.floor(from / unit); u < end;) {
      const first = u, e = last[u];
      while (u < end && last[u] === e) u++;
      found.push([Math.max(from, first * unit), Math.min(to, u * unit), e]);
    }
    return found;
  }

  cellPieces(cell) {
    const from = cell * this.cellSlots;
    return this.pieces(from, Math.min(this.numSlots, from + this.cellSlots));
  }

  // What an event says of its slots. The part behind written and reserved is waste: internal.
  describe(e) {
    const { start, count, written, reserved, request, sequence, index, refs, state } = this.events;
    const first = start[e] * this.unit;
    return {
      first,
      end: Math.min(this.numSlots, first + count[e] * this.unit),
      written: written[e],
      reserved: reserved[e],
      request: request[e],
      sequence: sequence[e],
      index: index[e],
      refs: refs[e],
      state: this.run.states[state[e]],
    };
  }

  // Every slot as [request, sequence, index, kind, refs, state], for tests: kind is 0 for free,
  // 1 for written, 2 for reserved, 3 for the rest.
  slots() {
    const all = [];
    for (const [from, to, e] of this.pieces(0, this.numSlots)) {
      for (let slot = from; slot < to; slot++) {
        if (e === NOTHING) { all.push([-1, -1, -1, 0, 0, "free"]); continue; }
        const d = this.describe(e);
        const at = slot - d.first;
        const kind = at < d.written ? 1 : at < d.written + d.reserved ? 2 : 3;
        all.push([d.request, d.sequence, d.index, d.state === "free" ? 0 : kind, d.refs, d.state]);
      }
    }
    return all;
  }
}
