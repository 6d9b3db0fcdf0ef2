// Tiny: draws cells of a few pixels, of which there are many, straight into the pixels. There is
// no room for hatches, outlines and numbers; shades say what is written, reserved and waste.

const TINY = 6; // cells smaller than this, in CSS pixels
const FREE = 0, HELD = 1, CACHED = 2, UNUSABLE = 3;
const SOLID = 0, FAINT = 1, UNWRITTEN = 2, WASTE = 3, FADED_SHADE = 4;
const SHADES = [1, 0.4, 0.3, 0.14, 0.18]; // how much of the owner's colour

class TinyCells {
  constructor(grid) {
    this.grid = grid;
    this.pool = grid.pool;
    const { canvas, palette, gap } = grid;
    this.image = new ImageData(canvas.width, canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.paper = pixelOf(palette.paper);
    this.ink = pixelOf(palette.ink);
    this.free = pixelOf(palette.terms.free);
    this.other = pixelOf(palette.other);
    this.pixels.fill(this.paper);
    this.gap = Math.round(gap * palette.ratio);
    this.codes = Uint8Array.from(this.pool.run.states, codeOf);
    this.shades = []; // of each owner's colour, the last for nobody: SOLID to FADED_SHADE
    for (let i = 0; i <= OWNER_COLORS.length; i++) {
      const { solid } = palette.owner(i < OWNER_COLORS.length ? i : -1);
      this.shades.push(Uint32Array.from(SHADES, (share) => pixelOf(mix(solid, palette.paper, share))));
    }
    const edge = (_, n) => Math.round(n * grid.size * palette.ratio);
    this.edges = Int32Array.from({ length: Math.max(grid.columns, grid.rows) + 1 }, edge);
  }

  draw(cells) {
    const { columns } = this.grid, { edges } = this;
    let top = Infinity, bottom = 0;
    for (const cell of cells) {
      const row = Math.floor(cell / columns);
      this.drawCell(cell, edges[row], edges[row + 1]);
      if (edges[row] < top) top = edges[row];
      if (edges[row + 1] > bottom) bottom = edges[row + 1];
    }
    if (bottom > top) {
      this.grid.context.putImageData(this.image, 0, 0, 0, top, this.image.width, bottom - top);
    }
  }

  drawCell(cell, top, bottom) {
    const { grid, pool, pixels, gap, edges, paper } = this;
    const column = cell % grid.columns, { width } = this.image;
    const left = edges[column], right = Math.min(width, edges[column + 1]);
    const first = cell * pool.cellSlots, each = pool.cellSlots / (right - left);
    const isLast = column === grid.columns - 1;
    for (let x = left; x < right; x++) {
      const slot = Math.min(pool.numSlots - 1, first + Math.floor((x - left + 0.5) * each));
      const e = pool.last[Math.floor(slot / pool.unit)];
      const isGap = x >= right - gap && (isLast || !this.goesOn(e, first + pool.cellSlots));
      const color = isGap ? paper : this.color(e, slot);
      for (let y = top; y < bottom - gap; y++) pixels[y * width + x] = color;
      for (let y = bottom - gap; y < bottom; y++) pixels[y * width + x] = paper;
      if (!isGap && e !== NOTHING && pool.events.refs[e] > 1) pixels[top * width + x] = this.ink;
    }
  }

  goesOn(e, slot) {
    const { start, count } = this.pool.events;
    return this.pool.run.blockSize === null && e !== NOTHING && (start[e] + count[e]) * this.pool.unit > slot;
  }

  color(e, slot) {
    if (e === NOTHING) return this.free;
    const { events, unit } = this.pool, code = this.codes[events.state[e]];
    if (code === FREE) return this.free;
    if (code === UNUSABLE) return this.other;
    const first = events.start[e] * unit, at = slot - first, request = events.request[e];
    const shades = this.shades[request < 0 ? OWNER_COLORS.length : request % OWNER_COLORS.length];
    if (this.grid.isFaded(request, first)) return shades[FADED_SHADE];
    if (at < events.written[e]) return shades[code === CACHED ? FAINT : SOLID];
    return shades[at < events.written[e] + events.reserved[e] ? UNWRITTEN : WASTE];
  }
}

function codeOf(state) {
  return state === "free" ? FREE : state === "cached" ? CACHED : isUnusable(state) ? UNUSABLE : HELD;
}

// A colour, "#rrggbb" or "rgb(r g b)", as one number of an image's pixels.
function pixelOf(color) {
  const parts = (color.startsWith("#") ? mix(color, color, 1) : color).match(/\d+/g).map(Number);
  return new Uint32Array(new Uint8Array([...parts, 255]).buffer)[0];
}
