// Tiny: draws cells of a few pixels, of which there are many, straight into the pixels. There is
// no room for hatches, outlines and numbers; shades say what is written, reserved and waste.

const TINY = 6; // cells smaller than this, in CSS pixels

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
    this.shades = new Map();
  }

  draw(cells) {
    let top = Infinity, bottom = 0;
    for (const cell of cells) {
      const row = Math.floor(cell / this.grid.columns);
      const [from, to] = [this.edge(row), this.edge(row + 1)];
      this.drawCell(cell, from, to);
      if (from < top) top = from;
      if (to > bottom) bottom = to;
    }
    if (bottom > top) {
      this.grid.context.putImageData(this.image, 0, 0, 0, top, this.image.width, bottom - top);
    }
  }

  edge(n) {
    return Math.round(n * this.grid.size * this.grid.palette.ratio);
  }

  drawCell(cell, top, bottom) {
    const { grid, pool, pixels, gap } = this;
    const column = cell % grid.columns, { width } = this.image;
    const left = this.edge(column), right = Math.min(width, this.edge(column + 1));
    const first = cell * pool.cellSlots, each = pool.cellSlots / (right - left);
    const isLast = column === grid.columns - 1;
    for (let x = left; x < right; x++) {
      const slot = Math.min(pool.numSlots - 1, first + Math.floor((x - left + 0.5) * each));
      const e = pool.last[Math.floor(slot / pool.unit)];
      const isGap = x >= right - gap && (isLast || !this.goesOn(e, first + pool.cellSlots));
      const color = isGap ? this.paper : this.color(e, slot);
      const isShared = !isGap && e !== NOTHING && pool.events.refs[e] > 1;
      for (let y = top; y < bottom; y++) {
        pixels[y * width + x] = y >= bottom - gap ? this.paper : color;
      }
      if (isShared) pixels[top * width + x] = this.ink;
    }
  }

  goesOn(e, slot) {
    const { start, count } = this.pool.events;
    return this.pool.run.blockSize === null && e !== NOTHING && (start[e] + count[e]) * this.pool.unit > slot;
  }

  color(e, slot) {
    if (e === NOTHING) return this.free;
    const { events, unit, run } = this.pool;
    const state = run.states[events.state[e]];
    if (state === "free") return this.free;
    if (isUnusable(state)) return this.other;
    const first = events.start[e] * unit, at = slot - first;
    const [solid, faint, reserved, waste, faded] = this.shadesOf(events.request[e]);
    if (this.grid.isFaded(events.request[e], first)) return faded;
    if (at < events.written[e]) return state === "cached" ? faint : solid;
    return at < events.written[e] + events.reserved[e] ? reserved : waste;
  }

  shadesOf(request) {
    const key = request < 0 ? -1 : request % OWNER_COLORS.length;
    let shades = this.shades.get(key);
    if (!shades) {
      const { palette } = this.grid, { solid } = palette.owner(request);
      shades = [1, 0.4, 0.3, 0.14, 0.18].map((share) => pixelOf(mix(solid, palette.paper, share)));
      this.shades.set(key, shades);
    }
    return shades;
  }
}

// A colour, "#rrggbb" or "rgb(r g b)", as one number of an image's pixels.
function pixelOf(color) {
  const parts = (color.startsWith("#") ? mix(color, color, 1) : color).match(/\d+/g).map(Number);
  return new Uint32Array(new Uint8Array([...parts, 255]).buffer)[0];
}
