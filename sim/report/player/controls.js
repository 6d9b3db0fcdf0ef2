// Controls: the buttons, the slider and the speed of a player, and the words beside them.

const ICONS = {
  first: "M4 4h2v12H4zM16 4v12L7 10z",
  back: "M14 4v12l-9-6z",
  play: "M5 3v14l12-7z",
  pause: "M5 4h3v12H5zM12 4h3v12h-3z",
  forward: "M6 4v12l9-6z",
  last: "M14 4h2v12h-2zM4 4v12l9-6z",
};

class Controls {
  constructor(player) {
    this.player = player;
    const button = (icon, label, action) => {
      const made = element("button", { type: "button", class: "kvp-button", "aria-label": label,
        title: label, onclick: action });
      setIcon(made, icon);
      return made;
    };
    this.toggle = button("play", "Play", () => player.toggle());
    this.toggle.classList.add("kvp-main");
    this.slider = element("input", { type: "range", class: "kvp-slider", min: "0", step: "any",
      max: String(player.end), "aria-label": "moment",
      oninput: () => { player.pause(); player.seek(Number(this.slider.value)); } });
    this.clock = element("output", { class: "kvp-clock", "aria-live": "off" });
    this.speed = element("output", { class: "kvp-speed", "aria-live": "polite" });
    this.root = element("div", { class: "kvp-controls", role: "group", "aria-label": "player" },
      element("div", { class: "kvp-buttons" },
        button("first", "To the start (Home)", () => { player.pause(); player.seek(0); }),
        button("back", "One iteration back (left arrow)", () => player.step(-1)), this.toggle,
        button("forward", "One iteration forward (right arrow)", () => player.step(1)),
        button("last", "To the end (End)", () => { player.pause(); player.seek(player.end); })),
      this.clock, this.slider,
      element("div", { class: "kvp-rate" },
        element("button", { type: "button", class: "kvp-button", "aria-label": "Slower (minus)",
          title: "Slower (−)", onclick: () => player.setSpeed(player.speedIndex - 1) }, "−"),
        this.speed,
        element("button", { type: "button", class: "kvp-button", "aria-label": "Faster (plus)",
          title: "Faster (+)", onclick: () => player.setSpeed(player.speedIndex + 1) }, "+")));
  }

  update() {
    const { player } = this;
    if (player.time === undefined) return;
    const state = player.playing ? "pause" : "play";
    if (this.state !== state) {
      this.state = state;
      setIcon(this.toggle, state);
      const label = state === "pause" ? "Pause (space)" : "Play (space)";
      this.toggle.setAttribute("aria-label", label);
      this.toggle.title = label;
    }
    this.slider.value = String(player.time);
    this.slider.style.setProperty("--kvp-done", `${(100 * player.time) / player.end}%`);
    const text = `${seconds(player.time, player.end)} of ${seconds(player.end, player.end)}`;
    const step = `step ${count(countUpTo(player.moments, player.time))} of ${count(player.moments.length)}`;
    this.slider.setAttribute("aria-valuetext", `${text}, ${step}`);
    this.clock.replaceChildren(element("b", {}, text), element("small", {}, step));
    const rate = speedText(player.speed);
    if (this.rate === rate) return;
    this.rate = rate;
    this.speed.replaceChildren(rate, element("span", {}, " real time"));
  }
}

// How fast the run goes by: as a multiple of real time, or its inverse.
function speedText(speed) {
  return speed >= 1 ? `${count(speed)}×` : `1/${count(Math.round(1 / speed))}×`;
}

function setIcon(button, name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  button.replaceChildren(svg);
}
