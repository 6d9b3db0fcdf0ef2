// Tables: the block tables of sequences at a moment, from the changes that were recorded. Only the
// tables of one request are ever asked for, so they are replayed from its own rows when needed.

const HOST = 1;

class Tables {
  constructor(run, pool) {
    Object.assign(this, { run, pool, rowsOf: null });
  }

  // The entries of a request's tables: what each holds, in order of sequence and logical index.
  at(request, time) {
    if (!this.run.tables.entries) return this.pool.held(request);
    const { time: when, sequence, index, place, start, count } = this.run.entries;
    const tables = new Map();
    for (const row of this.rows().get(request) || []) {
      if (when[row] > time) break;
      const table = tables.get(sequence[row]) || [];
      tables.set(sequence[row], table);
      if (count[row] === 0) table.length = Math.min(table.length, index[row]);
      else table[index[row]] = [place[row], start[row] * this.run.unit, count[row] * this.run.unit];
    }
    const sequences = [...tables.keys()].sort((a, b) => a - b);
    return sequences.flatMap((s) => tables.get(s).map((entry, i) => this.entry(s, i, entry)));
  }

  entry(sequence, index, [place, first, size]) {
    const end = first + size;
    if (place === HOST) return { sequence, index, first, end, written: null, refs: 1, state: "host" };
    const e = this.pool.last[Math.floor(first / this.pool.unit)];
    const piece = e === NOTHING ? null : this.pool.describe(e);
    const written = piece === null ? 0 : Math.max(0, Math.min(size, piece.first + piece.written - first));
    return { sequence, index, first, end, written, refs: piece ? piece.refs : 0, state: "held" };
  }

  rows() {
    if (this.rowsOf) return this.rowsOf;
    this.rowsOf = new Map();
    const { request, length } = this.run.entries;
    for (let row = 0; row < length; row++) {
      const rows = this.rowsOf.get(request[row]);
      if (rows) rows.push(row); else this.rowsOf.set(request[row], [row]);
    }
    return this.rowsOf;
  }
}
