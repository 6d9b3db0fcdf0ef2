// Palette: the colours of owners and of the six terms, and the hatches that say what colour alone
// would not. Owners take Okabe and Ito's colours in turn, which are told apart with every common
// colour blindness; every further round of owners adds a mark.

const OWNER_COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A400"];
const OWNER_INKS = ["#fff", "#111", "#fff", "#111", "#111", "#fff", "#111"];
const MARKS = ["none", "dot", "bar", "corner"];

class Palette {
  // `element` carries the theme's custom properties; `ratio` is device pixels a CSS pixel.
  constructor(element, ratio) {
    const style = getComputedStyle(element);
    const get = (name) => style.getPropertyValue(name).trim();
    this.paper = get("--kvp-paper");
    this.ink = get("--kvp-ink");
    this.line = get("--kvp-line");
    this.other = get("--kvp-external");
    this.nobody = get("--kvp-nobody");
    this.terms = Object.fromEntries(TERMS.map((t) => [t, get(`--kvp-${t}`)]));
    this.ratio = ratio;
    this.owners = new Map();
  }

  // Fills of an owner: solid for written, hatch for reserved, cross for waste, dots for cached.
  owner(request) {
    const key = request < 0 ? -1 : request % OWNER_COLORS.length;
    if (!this.owners.has(key)) {
      const color = key < 0 ? this.nobody : OWNER_COLORS[key];
      const tint = mix(color, this.paper, 0.2);
      this.owners.set(key, {
        solid: color,
        ink: key < 0 ? this.ink : OWNER_INKS[key],
        hatch: this.tile(tint, color, drawSlash),
        cross: this.tile(mix(color, this.paper, 0.1), mix(color, this.paper, 0.75), drawCross),
        dots: this.tile(mix(color, this.paper, 0.3), mix(color, this.paper, 0.85), drawDots),
      });
    }
    return this.owners.get(key);
  }

  mark(request) {
    return request < 0 ? "none" : MARKS[Math.floor(request / OWNER_COLORS.length) % MARKS.length];
  }

  tile(ground, color, draw) {
    const size = 6, canvas = document.createElement("canvas");
    canvas.width = canvas.height = Math.round(size * this.ratio);
    const context = canvas.getContext("2d");
    context.scale(canvas.width / size, canvas.width / size);
    context.fillStyle = ground;
    context.fillRect(0, 0, size, size);
    context.strokeStyle = context.fillStyle = color;
    draw(context, size);
    const pattern = context.createPattern(canvas, "repeat");
    pattern.setTransform(new DOMMatrix().scale(size / canvas.width));
    return pattern;
  }
}

function drawSlash(context, size) {
  context.lineWidth = 1.3;
  context.beginPath();
  for (const shift of [-size, 0, size]) {
    context.moveTo(shift - 1, size + 1);
    context.lineTo(shift + size + 1, -1);
  }
  context.stroke();
}

function drawCross(context, size) {
  context.lineWidth = 0.9;
  context.beginPath();
  context.moveTo(0, 0); context.lineTo(size, size);
  context.moveTo(0, size); context.lineTo(size, 0);
  context.stroke();
}

function drawDots(context, size) {
  for (const at of [size * 0.25, size * 0.75]) {
    context.beginPath();
    context.arc(at, at, 0.9, 0, 7);
    context.fill();
  }
}

// Two "#rrggbb" (or "#rgb") colours, `share` of the first.
function mix(a, b, share) {
  const [x, y] = [a, b].map((hex) => {
    const h = hex.length === 4 ? [...hex.slice(1)].map((c) => c + c).join("") : hex.slice(1);
    return [0, 2, 4].map((i) => parseInt(h.slice(i, i + 2), 16));
  });
  return `rgb(${x.map((v, i) => Math.round(v * share + y[i] * (1 - share))).join(" ")})`;
}
