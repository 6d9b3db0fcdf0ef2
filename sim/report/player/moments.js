// Moments: buttons that lead to what happens first of each kind in a run (landmarks.py), marks of
// them over its timeline, and the story: a line that says what is seen there.

class Moments {
  constructor(player, run) {
    Object.assign(this, { player, run });
    this.buttons = run.landmarks.map((landmark) => element("button", { type: "button", class: "kvp-chip",
      title: landmark[2], onclick: () => player.visit(player.landmarks.findIndex(([, other]) => other === landmark)) },
    `${landmark[1]} `, element("small", {}, seconds(landmark[0], player.end))));
    this.marks = run.landmarks.map(() => element("i", { class: "kvp-mark" }));
    this.root = element("div", { class: "kvp-chips kvp-moments", role: "group", "aria-label": "moments" },
      element("span", { class: "kvp-more" }, "Drag to any moment, or jump to"), ...this.buttons);
  }

  layout(width) {
    this.marks.forEach((mark, i) => {
      mark.style.left = `${(this.run.landmarks[i][0] / this.player.end) * width}px`;
    });
  }

  update(time) {
    this.run.landmarks.forEach(([when], i) => {
      const isNow = String(when === time);
      if (this.buttons[i].getAttribute("aria-pressed") !== isNow) this.buttons[i].setAttribute("aria-pressed", isNow);
    });
  }
}

// What there is to say of a landmark of a run; undefined: before the first.
function story(told, end) {
  if (!told) return ["Nothing of note has happened yet."];
  const [run, [time, title, words]] = told;
  return [element("b", {}, `${title}, ${seconds(time, end)}.`), ` ${run.label}: ${words}`];
}
