// Grid: draws a pool on a canvas, cell by cell, and only the cells that changed. A cell holds one
// block, or the same number of slots of memory without blocks; a range that goes on in the next
// cell has no gap before it, so that blocks look like blocks and ranges like ranges.

const MAX_CELL = 40, MIN_CELL = 2, MAX_HEIGHT = 440;

class Grid {
  constructor(canvas, pool) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.pool = pool;
    this.selected = null;
    this.mine = new Set(); // first slots of what the selected request holds, also with others
    this.cursor = -1;
  }

  layout(width, palette) {
    const { numCells } = this.pool;
    let size = Math.min(MAX_CELL, Math.floor(Math.sqrt((width * MAX_HEIGHT) / numCells)));
    size = Math.max(MIN_CELL, size);
    let columns = Math.max(1, Math.floor(width / size));
    if (columns >= 8) columns -= columns % (columns >= 64 ? 16 : 4);
    if (numCells <= 1024) columns = 2 ** Math.floor(Math.log2(columns));
    this.columns = Math.min(columns, numCells);
    this.size = Math.min(MAX_CELL, Math.floor(width / this.columns));
    this.rows = Math.ceil(numCells / this.columns);
    this.gap = this.size >= 12 ? 2 : this.size >= 4 ? 1 : 0;
    this.palette = palette;
    const pixels = palette.ratio;
    this.canvas.width = Math.round(this.columns * this.size * pixels);
    this.canvas.height = Math.round(this.rows * this.size * pixels);
    this.canvas.style.width = `${this.columns * this.size}px`;
    this.canvas.style.height = `${this.rows * this.size}px`;
    this.context.setTransform(pixels, 0, 0, pixels, 0, 0);
    this.context.fillStyle = palette.paper;
    this.context.fillRect(0, 0, this.columns * this.size, this.rows * this.size);
    this.tiny = this.size < TINY ? new TinyCells(this) : null;
    this.pool.markAll();
  }

  draw() {
    const cells = this.pool.takeDirty();
    if (this.tiny) {
      this.tiny.draw(cells);
      if (this.cursor >= 0) this.ring(...this.corner(this.cursor), this.palette.ink, 1);
    } else {
      for (const cell of cells) this.drawCell(cell);
    }
    return cells.length;
  }

  corner(cell) {
    return [(cell % this.columns) * this.size, Math.floor(cell / this.columns) * this.size];
  }

  drawCell(cell) {
    const { context, size, pool } = this;
    const [x, y] = this.corner(cell);
    context.fillStyle = this.palette.paper;
    context.fillRect(x, y, size, size);
    const first = cell * pool.cellSlots;
    const scale = size / pool.cellSlots;
    for (const [from, to, e] of pool.cellPieces(cell)) {
      const left = x + (from - first) * scale;
      if (e === NOTHING) this.drawFree(left, y, (to - from) * scale);
      else this.drawPiece(pool.describe(e), from, to, left, y);
    }
    if (cell === this.cursor) this.ring(x, y, this.palette.ink, 2);
  }

  drawFree(x, y, width) {
    const { context, gap, size } = this;
    context.fillStyle = this.palette.line;
    const right = Math.max(1, width - gap), height = size - gap;
    context.fillRect(x, y, right, height);
    context.fillStyle = this.palette.paper;
    context.fillRect(x + 1, y + 1, right - 2, height - 2);
  }

  // A stretch [from, to) of the piece d, whose left end is at x.
  drawPiece(d, from, to, x, y) {
    const { context, gap, size } = this;
    const scale = size / this.pool.cellSlots, height = size - gap;
    const isRange = this.pool.run.blockSize === null;
    const goesOn = isRange && to < d.end && this.cellOf(to) % this.columns !== 0;
    const width = Math.max(1, (to - from) * scale - (goesOn ? 0 : gap));
    if (d.state === "free") { this.drawFree(x, y, (to - from) * scale); return; }
    const owner = this.palette.owner(d.request);
    if (this.selected !== null && d.request !== this.selected && !this.mine.has(d.first)) {
      context.globalAlpha = 0.22;
    }
    const writtenTo = Math.min(to, d.first + d.written);
    const reservedTo = Math.min(to, d.first + d.written + d.reserved);
    const solid = d.state === "cached" ? owner.dots : owner.solid;
    const right = x + width;
    let at = x;
    const paint = (until, fill) => {
      const end = until === to ? right : Math.min(right, x + (until - from) * scale);
      if (end > at) { context.fillStyle = fill; context.fillRect(at, y, end - at, height); at = end; }
    };
    if (isUnusable(d.state)) {
      paint(to, this.palette.other);
    } else {
      if (writtenTo > from) paint(writtenTo, solid);
      if (reservedTo > from) paint(reservedTo, owner.hatch);
      paint(to, owner.cross);
    }
    this.decorate(d, from, [x, y, width, height]);
    context.globalAlpha = 1;
  }

  // Outline if shared, and what tells owners apart beside colour: a number, or a mark.
  decorate(d, from, [x, y, width, height]) {
    const { context } = this;
    const isFirst = from === d.first, isRowStart = this.cellOf(from) % this.columns === 0;
    if (d.refs > 1) {
      context.strokeStyle = this.palette.ink;
      context.lineWidth = this.size >= 14 ? 2 : 1;
      const inset = context.lineWidth / 2;
      context.strokeRect(x + inset, y + inset, width - 2 * inset, height - 2 * inset);
    } else if (isFirst && width > 3) {
      context.fillStyle = this.palette.owner(d.request).solid;
      context.fillRect(x, y, 1.5, height);
    }
    if (d.request < 0 || !(isFirst || isRowStart)) return;
    if (this.size >= 15 && this.label(d, x, y, width, height)) return;
    this.drawMark(d, x, y, Math.min(width, this.size), height);
  }

  label(d, x, y, width, height) {
    const { context, size } = this;
    const fontSize = Math.max(8, Math.min(13, size * 0.4));
    context.font = `600 ${fontSize}px ui-sans-serif, system-ui, sans-serif`;
    const room = this.pool.run.blockSize === null ? this.size * 1.6 : width - 2;
    const whole = `${d.request}:${d.index}`, short = `${d.request}`;
    const fits = (text) => context.measureText(text).width <= room;
    const isBlock = this.pool.run.blockSize !== null && d.index >= 0;
    const text = isBlock && size >= 26 && fits(whole) ? whole : fits(short) ? short : null;
    if (text === null) return false;
    const isShared = d.refs > 1 && size >= 24;
    const isSolid = d.state !== "cached" && d.written * (size / this.pool.cellSlots) > width * 0.8;
    this.write(text, x + width / 2, y + height * (isShared ? 0.36 : 0.54), d, isSolid);
    if (isShared) {
      context.font = `700 ${fontSize * 0.85}px ui-sans-serif, system-ui, sans-serif`;
      this.write(`×${d.refs}`, x + width / 2, y + height * 0.76, d, isSolid);
    }
    return true;
  }

  write(text, x, y, d, isSolid) {
    const { context } = this;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    if (!isSolid) {
      context.strokeStyle = this.palette.paper;
      context.lineWidth = 3;
      context.strokeText(text, x, y);
    }
    context.fillStyle = isSolid ? this.palette.owner(d.request).ink : this.palette.ink;
    context.fillText(text, x, y);
  }

  drawMark(d, x, y, width, height) {
    const mark = this.palette.mark(d.request), { context } = this;
    if (mark === "none" || width < 5) return;
    context.fillStyle = d.written > 0 ? this.palette.owner(d.request).ink : this.palette.ink;
    const third = Math.max(2, Math.floor(Math.min(width, height) / 3));
    if (mark === "dot") context.fillRect(x + third, y + third, third, third);
    else if (mark === "bar") context.fillRect(x, y + third, width, Math.max(1, third - 1));
    else context.fillRect(x, y, third, third);
  }

  ring(x, y, color, line) {
    this.context.strokeStyle = color;
    this.context.lineWidth = line;
    this.context.strokeRect(x + line / 2, y + line / 2, this.size - line, this.size - line);
  }

  cellOf(slot) {
    return Math.floor(slot / this.pool.cellSlots);
  }

  // The cell under a point of the canvas in CSS pixels, and the slot in it; null outside.
  hit(x, y) {
    const column = Math.floor(x / this.size), row = Math.floor(y / this.size);
    const cell = row * this.columns + column;
    if (column < 0 || column >= this.columns || row < 0 || cell >= this.pool.numCells) return null;
    const within = Math.floor(((x - column * this.size) / this.size) * this.pool.cellSlots);
    return { cell, slot: Math.min(this.pool.numSlots - 1, cell * this.pool.cellSlots + within) };
  }

  select(request) {
    this.selected = request;
    this.pool.markAll();
  }

  setCursor(cell) {
    for (const c of [this.cursor, cell]) {
      if (c >= 0) this.pool.markSlots(c * this.pool.cellSlots, (c + 1) * this.pool.cellSlots);
    }
    this.cursor = cell;
  }
}

function isUnusable(state) {
  return state !== "held" && state !== "cached" && state !== "free";
}
