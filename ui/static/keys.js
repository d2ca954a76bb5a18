// The keyboard: / searches, g and a letter go to a page, j and k walk through rows, Enter opens one, p holds the page,
// ? shows this. And what a click or Esc closes.

const base = document.body.dataset.base;
const places = { o: "/", j: "/jobs", r: "/runs", w: "/workers", s: "/settings" };
const help = document.querySelector("dialog[data-keys]");
let went = 0; // when g was pressed

const writes = (element) => element?.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

function walk(step) {
  const rows = [...document.querySelectorAll("#page tr[data-href]")].filter((row) => row.offsetParent);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement?.closest?.("tr[data-href]"));
  const row = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  row.tabIndex = -1;
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

function closeMenus(except) {
  for (const open of document.querySelectorAll("details.menu[open]")) {
    if (except && open.contains(except)) continue;
    if (open.contains(document.activeElement) && !except) open.querySelector("summary")?.focus();
    open.open = false;
  }
}

// The bars of a job's last runs are one stop of Tab; the arrows walk through them.
function bars() {
  for (const spark of document.querySelectorAll(".spark")) {
    const links = [...spark.querySelectorAll("a")];
    const stop = links.find((link) => link === document.activeElement) ?? links.at(-1);
    for (const link of links) link.setAttribute("tabindex", link === stop ? "0" : "-1");
  }
}
document.addEventListener("placed", bars);
bars();

document.addEventListener("keydown", (event) => {
  const bar = event.target.closest?.(".spark a");
  if (bar && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    const next = event.key === "ArrowLeft" ? bar.previousElementSibling : bar.nextElementSibling;
    if (next?.matches("a")) next.focus();
    bars();
    event.preventDefault();
    return;
  }
  if (event.key === "Escape") {
    closeMenus();
    if (writes(event.target)) event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || writes(event.target) || document.querySelector("dialog[open]")) return;
  const key = event.key;
  if (went && Date.now() - went < 1500 && places[key]) location.href = base + places[key];
  else if (key === "/") document.getElementById("search")?.focus();
  else if (key === "?") help?.showModal();
  else if (key === "j" || key === "k") walk(key === "j" ? 1 : -1);
  else if (key === "p") document.dispatchEvent(new Event("hold"));
  else if (key === "Enter" && document.activeElement?.matches("tr[data-href]")) location.href = document.activeElement.dataset.href;
  else {
    went = key === "g" ? Date.now() : 0;
    return;
  }
  went = 0;
  event.preventDefault();
});

document.addEventListener("click", (event) => closeMenus(event.target));
document.addEventListener("keyup", (event) => { if (event.key === "Tab") closeMenus(event.target); });
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details.menu[open]")) event.target.querySelector("[autofocus], input:not([type=hidden]), textarea, select")?.focus();
}, true);

const ask = document.querySelector("[data-help]");
if (ask) {
  ask.hidden = false;
  ask.addEventListener("click", () => help?.showModal());
}

// Light and dark without a new page; the server reads the cookie when it makes the next one.
document.querySelector("[data-theme-form]")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const theme = event.submitter?.value;
  const chosen = theme === "light" || theme === "dark";
  document.cookie = `carillon_theme=${chosen ? theme : ""}; path=${base}/; max-age=${chosen ? 34560000 : 0}; samesite=lax`;
  if (chosen) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  for (const button of event.target.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button === event.submitter));
});
