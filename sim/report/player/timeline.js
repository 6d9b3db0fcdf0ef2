// Timeline: the six terms over the whole run as a stacked picture, drawn once a layout; a line
// over it marks the moment. And the words for numbers and times that all parts use.

class Timeline {
  constructor(canvas, playhead, run, end) {
    Object.assign(this, { canvas, playhead, run, end });
  }

  layout(width, palette) {
    const height = 64, ratio = palette.ratio, context = this.canvas.getContext("2d");
    this.width = width;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.paper;
    context.fillRect(0, 0, width, height);
    for (let x = 0; x < width; x++) {
      const from = countUpTo(this.run.iterations.start, (x / width) * this.end) - 1;
      const to = countUpTo(this.run.iterations.start, ((x + 1) / width) * this.end) - 1;
      const at = this.fullest(Math.max(0, from), to);
      if (at >= 0) this.column(context, palette, x, height, at, from);
    }
  }

  // Of the iterations of one pixel the one with least free, so that short peaks are seen.
  fullest(from, to) {
    const { free } = this.run.iterations;
    let best = to;
    for (let i = from; i <= to; i++) if (free[i] < free[best]) best = i;
    return best;
  }

  column(context, palette, x, height, at, from) {
    const { iterations, numSlots } = this.run;
    const isIdle = from === at && iterations.start[at] + iterations.lasts[at] < (x / this.width) * this.end;
    let bottom = height;
    for (const term of TERMS) {
      if (term === "free" || (isIdle && term !== "cached")) continue;
      const part = (iterations[term][at] / numSlots) * height;
      context.fillStyle = palette.terms[term];
      context.fillRect(x, bottom - part, 1, part);
      bottom -= part;
    }
  }

  move(time) {
    this.playhead.style.transform = `translateX(${(time / this.end) * this.width}px)`;
  }

  timeAt(x) {
    return Math.max(0, Math.min(1, x / this.width)) * this.end;
  }
}

function count(value) {
  return value.toLocaleString("en-US");
}

function percent(part, whole) {
  const share = whole ? (100 * part) / whole : 0;
  return `${share > 0 && share < 0.1 ? "<0.1" : share.toFixed(share >= 10 || share === 0 ? 0 : 1)} %`;
}

// Nanoseconds as seconds, with as many digits as the length of the run asks for.
function seconds(time, end) {
  const digits = Math.max(0, Math.min(6, (end < 1e9 ? 2 : 3) - Math.floor(Math.log10(Math.max(1, end) / 1e9))));
  return `${(time / 1e9).toFixed(digits)} s`;
}

function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
