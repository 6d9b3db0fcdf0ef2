// Player: one clock over the panels. Plays, steps by iteration, scrubs; keys and buttons.

const SPEEDS = [];
for (let power = -6; power <= 3; power++) for (const step of [1, 2, 5]) SPEEDS.push(step * 10 ** power);
const LISTS_EVERY_MS = 125, CALM_FRAME_MS = 300, MAX_FRAME_MS = 100;

const KEYS = "Keys: space plays and pauses, ← and → step by iteration, Page Up and Page Down by many, "
  + "Home and End go to the ends, n and p to the next and the previous of the moments below the maps, "
  + "+ and − change the speed. In a map the arrow keys move between cells, Enter chooses the owner, "
  + "Escape lets go.";

class Player {
  constructor(root, runs, shown) {
    Object.assign(this, { root, runs, playing: false, selected: null, isFresh: true });
    this.end = Math.max(1, ...runs.map((run) => run.end));
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.controls = new Controls(this);
    this.panels = shown.map((index) => new Panel(this, runs, index));
    this.live = element("p", { class: "kvp-hidden", "aria-live": "polite" });
    this.story = element("p", { class: "kvp-story" });
    root.replaceChildren(this.controls.root, this.story,
      element("div", { class: "kvp-panels" }, ...this.panels.map((p) => p.root)),
      element("p", { class: "kvp-notes kvp-keys" }, KEYS), this.live);
    root.tabIndex = -1;
    root.addEventListener("keydown", (event) => this.onKey(event));
    this.findMoments();
    this.chooseSpeed();
    new ResizeObserver(() => this.layout()).observe(root);
    for (const media of ["(prefers-color-scheme: dark)", "print"]) {
      matchMedia(media).addEventListener("change", () => this.layout(true));
    }
    this.begin();
    this.layout();
  }

  // Starts of iterations of the runs shown, which are the steps, and the end; and their landmarks.
  findMoments() {
    const all = new Set([0, this.end]);
    for (const { run } of this.panels) for (const start of run.iterations.start) all.add(start);
    this.moments = Float64Array.from(all).sort();
    this.landmarks = this.panels.flatMap(({ run }) => run.landmarks.map((landmark) => [run, landmark]))
      .sort(([, a], [, b]) => a[0] - b[0]);
    this.visited = -1;
  }

  // Some seconds for the whole run: more the more there is to see.
  chooseSpeed() {
    const wanted = this.end / 1e9 / Math.max(6, Math.min(60, this.moments.length / 4));
    this.setSpeed(Math.max(0, SPEEDS.findLastIndex((speed) => speed <= wanted)));
  }

  // A picture to begin with: the moment when the last pool holds most.
  begin() {
    const { run } = this.panels[this.panels.length - 1];
    const fullest = this.landmarks.findIndex(([of, [, title]]) => of === run && title === "fullest");
    this.visited = fullest;
    this.time = fullest < 0 ? 0 : this.landmarks[fullest][1][0];
  }

  // To a landmark, with what it is about chosen.
  visit(index) {
    const [, [time, , , request]] = this.landmarks[index];
    this.pause();
    this.visited = index;
    this.selected = request < 0 ? null : request;
    this.seek(time);
  }

  // The landmark that was last: of several of one time the one that was asked for.
  latest() {
    const isThere = this.visited >= 0 && this.landmarks[this.visited][1][0] === this.time;
    return isThere ? this.visited : this.landmarks.filter(([, [time]]) => time <= this.time).length - 1;
  }

  leap(count) {
    const from = this.latest();
    const isPast = from >= 0 && this.landmarks[from][1][0] < this.time;
    const next = from + (count < 0 && isPast ? 0 : count);
    if (this.landmarks[next]) this.visit(next);
  }

  layout(always = false) {
    const width = this.root.clientWidth;
    if (!width || (!always && width === this.width)) return;
    this.width = width;
    const palette = new Palette(this.root, window.devicePixelRatio || 1);
    for (const panel of this.panels) panel.layout(palette);
    this.render(true);
  }

  exchange(panel, index) {
    panel.show(index);
    this.findMoments();
    this.layout(true);
    panel.root.querySelector("select").focus();
    this.announce();
  }

  play() {
    if (this.isFresh || this.time >= this.end) this.time = 0;
    this.isFresh = false;
    this.playing = true;
    this.before = this.listsAt = null;
    this.controls.update();
    requestAnimationFrame((now) => this.frame(now));
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.render(true);
    this.announce();
  }

  toggle() {
    if (this.playing) this.pause(); else this.play();
  }

  frame(now) {
    if (!this.playing) return;
    if (this.before === null) this.before = now;
    const passed = now - this.before;
    if (!this.calm.matches || passed >= CALM_FRAME_MS) {
      const most = this.calm.matches ? CALM_FRAME_MS : MAX_FRAME_MS;
      this.time = Math.min(this.end, this.time + Math.min(passed, most) * 1e6 * this.speed);
      this.before = now;
      const withLists = this.listsAt === null || now - this.listsAt >= LISTS_EVERY_MS;
      if (withLists) this.listsAt = now;
      this.render(withLists);
      if (this.time >= this.end) { this.pause(); return; }
    }
    requestAnimationFrame((next) => this.frame(next));
  }

  seek(time) {
    this.isFresh = false;
    this.time = Math.max(0, Math.min(this.end, time));
    this.render(true);
    this.announce();
  }

  // Forward or back by iterations of any of the runs.
  step(count) {
    this.pause();
    const upTo = countUpTo(this.moments, this.time);
    const isOn = this.moments[upTo - 1] === this.time;
    const next = count > 0 ? upTo - 1 + count : upTo - (isOn ? 1 : 0) + count;
    this.seek(this.moments[Math.max(0, Math.min(this.moments.length - 1, next))]);
  }

  setSpeed(index) {
    this.speedIndex = Math.max(0, Math.min(SPEEDS.length - 1, index));
    this.speed = SPEEDS[this.speedIndex];
    this.controls.update();
  }

  select(request) {
    this.selected = request === this.selected ? null : request;
    this.render(true);
  }

  render(withLists) {
    const latest = this.latest();
    if (this.told !== this.landmarks[latest]) {
      this.told = this.landmarks[latest];
      this.story.replaceChildren(...story(this.told, this.end));
    }
    for (const panel of this.panels) panel.update(this.time, withLists);
    this.controls.update();
  }

  // What screen readers hear: once things have come to rest.
  announce() {
    clearTimeout(this.announcing);
    this.announcing = setTimeout(() => {
      if (this.playing) return;
      const isThere = this.told && this.told[1][0] === this.time;
      this.live.textContent = `${isThere ? this.story.textContent : seconds(this.time, this.end)}. `
        + this.panels.map((panel) => panel.sentence()).join(" ");
    }, 500);
  }

  onKey(event) {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    const far = Math.max(1, Math.round(this.moments.length / 20));
    const actions = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      PageDown: () => this.step(-far), PageUp: () => this.step(far),
      Home: () => { this.pause(); this.seek(0); }, End: () => { this.pause(); this.seek(this.end); },
      "+": () => this.setSpeed(this.speedIndex + 1), "=": () => this.setSpeed(this.speedIndex + 1),
      "-": () => this.setSpeed(this.speedIndex - 1), " ": () => this.toggle(),
      n: () => this.leap(1), p: () => this.leap(-1),
      Escape: () => this.selected !== null && this.select(this.selected),
    };
    const isButton = event.target.tagName === "BUTTON" && event.key === " ";
    if (!(event.key in actions) || isButton) return;
    event.preventDefault();
    actions[event.key]();
  }
}
