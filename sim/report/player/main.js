// Main: turns every section of the page that holds recordings into a player. If the browser
// cannot, the still pictures stay and a line says why.

async function start(section) {
  const data = JSON.parse(section.querySelector(".kvp-data").textContent);
  const runs = await Promise.all(data.runs.map(unpack));
  const root = section.querySelector(".kvp-app");
  root.hidden = false;
  section.kvplayer = new Player(root, runs, data.shown);
  section.querySelector(".kvp-stills").hidden = true;
  section.querySelector(".kvp-how").hidden = false;
}

for (const section of document.querySelectorAll(".kvp:not([data-started])")) {
  section.dataset.started = "";
  start(section).catch((error) => {
    section.querySelector(".kvp-app").hidden = true;
    section.querySelector(".kvp-failed").hidden = false;
    section.querySelector(".kvp-failed").textContent = `The player could not start: ${error.message}`;
  });
}
