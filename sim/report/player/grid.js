// Grid: draws a pool on a canvas, cell by cell, and only the cells that changed. A cell holds one
// block, or the same number of slots of memory without blocks; a range that goes on in the next
// cell has no gap before it, so that blocks look like blocks and ranges like ranges.

const MAX_CELL = 40, MIN_CELL = 2, MAX_HEIGHT = 440;
const FEW_CELLS = 32, MAX_CELL_OF_FEW = 68; // pools of a textbook
const PHONE = 480, MAX_CELL_OF_PHONE = 28, MAX_HEIGHT_OF_PHONE = 300;
const FADED = 0.28; // opacity of all others when a request is chosen
const EVERY = 4; // columns are a multiple of it, so that addresses can be counted
const FILLED = 0.9; // of the width
const LABEL_PX = 15, INDEX_PX = 26; // from which size a cell has a number, and its logical block
const MARK_PX = 12; // and a mark: in smaller ones it would hide what is solid

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
    const [size, columns] = shape(width, numCells);
    this.size = size;
    this.columns = columns;
    this.rows = Math.ceil(numCells / columns);
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
    if (this.isFaded(d.request, d.first)) context.globalAlpha = FADED;
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
    const solidTo = d.state === "held" ? x + (writtenTo - from) * scale : x;
    this.decorate(d, from, [x, y, width, height], solidTo);
    context.globalAlpha = 1;
  }

  // Outline if shared, and what tells owners apart beside colour: a number, or a mark.
  decorate(d, from, [x, y, width, height], solidTo) {
    const { context } = this;
    const isFirst = from === d.first;
    if (d.refs > 1) {
      context.strokeStyle = this.palette.ink;
      context.lineWidth = this.size >= 14 ? 2 : 1;
      const inset = context.lineWidth / 2;
      context.strokeRect(x + inset, y + inset, width - 2 * inset, height - 2 * inset);
    } else if (isFirst && width > 3) {
      context.fillStyle = this.palette.owner(d.request).solid;
      context.fillRect(x, y, 1.5, height);
    }
    if (d.request < 0 || !this.isLabelled(d, from)) return;
    if (this.size >= LABEL_PX && this.label(d, [x, y, width, height], solidTo)) return;
    this.drawMark(d, x, y, Math.min(width, this.size), height);
  }

  // Whether a piece says in this cell whose it is: in each row of cells it begins in or reaches,
  // where there is room.
  isLabelled(d, from) {
    const cell = this.cellOf(from), first = this.cellOf(d.first);
    if (this.pool.run.blockSize !== null) return from === d.first || cell % this.columns === 0;
    if (cell !== first && cell % this.columns === 0) return true;
    const room = ((first + 1) * this.pool.cellSlots - d.first) * (this.size / this.pool.cellSlots);
    return cell === first + (room < LABEL_PX ? 1 : 0);
  }

  label(d, [x, y, width, height], solidTo) {
    const { context, size } = this, { run } = this.pool;
    const owner = run.hasForks ? `${d.request}.${d.sequence}` : `${d.request}`;
    const hasIndex = run.blockSize !== null && d.index >= 0 && size >= INDEX_PX;
    const scale = hasIndex && size < 2 * LABEL_PX + 4 ? 0.82 : 1;
    const tries = [...(hasIndex ? [[`${owner}:${d.index}`, scale]] : []), [owner, scale],
      [`${d.request}`, 0.8]];
    const largest = Math.max(8, Math.min(16, size * 0.36));
    const fitting = tries.find(([text, part]) => {
      context.font = `600 ${largest * part}px ui-sans-serif, system-ui, sans-serif`;
      return context.measureText(text).width <= width - 3;
    });
    if (!fitting) return false;
    const [text] = fitting, middle = x + width / 2;
    const isSolid = solidTo >= middle + context.measureText(text).width / 2;
    const isShared = d.refs > 1 && size >= INDEX_PX;
    this.write(text, middle, y + height * (isShared ? 0.36 : 0.54), d, isSolid);
    if (isShared) {
      context.font = `700 ${largest * 0.85}px ui-sans-serif, system-ui, sans-serif`;
      this.write(`×${d.refs}`, middle, y + height * 0.74, d, isSolid);
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
    if (mark === "none" || width < 5 || this.size < MARK_PX) return;
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

  // Show the request chosen (null: none), which holds pieces at these slots: all others fade,
  // unless it holds nothing.
  select(request, firstSlots) {
    this.mine = new Set(firstSlots);
    const shown = this.mine.size ? request : null;
    if (shown !== this.selected) this.pool.markAll();
    this.selected = shown;
  }

  isFaded(request, first) {
    return this.selected !== null && request !== this.selected && !this.mine.has(first);
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

// Size and columns of cells: as large as they may be, so that the grid is not higher than allowed.
function shape(width, numCells) {
  const isPhone = width < PHONE;
  const ofFew = Math.min(MAX_CELL_OF_FEW, Math.floor(width / Math.min(numCells, 2 * EVERY)));
  const largest = numCells <= FEW_CELLS ? ofFew : isPhone ? MAX_CELL_OF_PHONE : MAX_CELL;
  const columnsOf = (size) => {
    const fit = Math.max(1, Math.floor(width / size));
    return Math.min(numCells, fit > EVERY ? fit - (fit % EVERY) : fit);
  };
  const highest = isPhone ? MAX_HEIGHT_OF_PHONE : MAX_HEIGHT;
  for (let size = largest; size > MIN_CELL; size--) {
    const columns = columnsOf(size);
    const fills = columns === numCells || columns * size >= FILLED * width;
    if (fills && Math.ceil(numCells / columns) * size <= highest) return [size, columns];
  }
  return [MIN_CELL, columnsOf(MIN_CELL)];
}
