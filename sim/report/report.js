"use strict";
/* Without this script the page is complete; with it, tables can be sorted and filtered. */
(() => {
  const collator = new Intl.Collator("en", { numeric: true });
  const number = (text) => {
    const match = /^[+-]?(\d[\d,]*(\.\d*)?|\.\d+)(e[+-]?\d+)?/i.exec(text);
    return match ? parseFloat(match[0].replaceAll(",", "")) : NaN;
  };
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    const [isX, isY] = [!Number.isNaN(x), !Number.isNaN(y)];
    if (isX && isY && x !== y) return x - y;
    if (isX !== isY) return isX ? -1 : 1;
    return collator.compare(a, b);
  };

  const sort = (table, column, head) => {
    const descends = head.getAttribute("aria-sort") === "ascending";
    const rows = [...table.tBodies[0].rows];
    const keyed = rows.map((row) => [row.cells[column].textContent.trim(), row]);
    const isEmpty = (text) => text === "" || text === "–";
    keyed.sort(([a], [b]) => {
      if (isEmpty(a) || isEmpty(b)) return isEmpty(a) - isEmpty(b);
      return descends ? compare(b, a) : compare(a, b);
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descends ? "descending" : "ascending");
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  };

  const makeSortable = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if ("unsorted" in head.dataset || head.querySelector("details")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, column, head));
    });
  };

  const makeFilters = (table) => {
    const rows = [...table.tBodies[0].rows];
    const controls = document.createElement("div");
    controls.className = "filters";
    const count = document.createElement("output");
    const selects = table.dataset.filter.split(" ").map((key) => {
      const label = document.createElement("label");
      const select = document.createElement("select");
      const values = [...new Set(rows.map((row) => row.dataset[key]))].sort(collator.compare);
      select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
      select.id = `filter-${key}`;
      label.htmlFor = select.id;
      label.append(`${key} `, select);
      controls.append(label);
      return [key, select];
    });
    const label = document.createElement("label");
    const words = document.createElement("input");
    words.type = "search";
    words.id = "filter-words";
    label.htmlFor = words.id;
    label.append("with the words ", words);
    controls.append(label, count);
    const apply = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !selects.every(([key, s]) => s.value === "" || s.value === row.dataset[key])
          || !wanted.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${rows.length} shown`;
    };
    controls.addEventListener("input", apply);
    apply();
    table.parentElement.before(controls);
  };

  for (const table of document.querySelectorAll("main table")) {
    if (!table.tHead || !table.tBodies.length || table.tBodies[0].rows.length < 2) continue;
    if (table.closest("section section")) continue; // a part with a script of its own
    if (table.dataset.filter) makeFilters(table);
    makeSortable(table);
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details.long:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();
