// Keeps a page current: hears from the server that something has changed, fetches the page's parts again and puts what
// differs in their place. Without it everything still works, by reloading.
import { markup, morph } from "./morph.js";
import { times } from "./time.js";
import "./keys.js";
import "./form.js";
import "./saved.js";
import "./tip.js";

const base = document.body.dataset.base;
const button = document.querySelector("[data-hold]");
let held = false; // the reader wants the page to stay as it is
let stale = false; // something has changed since
let fetching = false;
let etag = "";
let going = 0; // when a form was sent: another page is about to come
let asking = new AbortController();

async function refresh() {
  if ("answer" in document.body.dataset) return; // to a form that was refused: there is nothing to look at again
  if (held || document.hidden || fetching || Date.now() - going < 4000) {
    stale = true;
    return;
  }
  fetching = true;
  stale = false;
  try {
    const answer = await fetch(location.href, { headers: { "X-Fragment": "1", ...(etag && { "If-None-Match": etag }) }, cache: "no-store", signal: asking.signal });
    if (answer.status === 401) location.reload();
    if (answer.status === 200) {
      etag = answer.headers.get("ETag") ?? "";
      place(await answer.text());
    }
  } catch {
    // The server is away, which the stream says; or this page is about to go.
  } finally {
    fetching = false;
    if (stale) setTimeout(refresh, 250);
  }
}

// While runs are selected, their list stays as it is: rows that moved away would be selected no more. What came since
// is shown on request, and then the selected rows stay as well.
let pending = ""; // the page that is not shown yet
const selection = () => [...document.querySelectorAll("input[name=id][form=bulk]:checked")];

function selected(newer) {
  const word = document.querySelector("[data-selected]");
  const more = document.querySelector("[data-newer]");
  const n = selection().length;
  if (word) word.textContent = n ? `${n} selected` : "";
  if (!more) return;
  more.hidden = !n || !newer;
  if (newer) more.textContent = `${newer} newer ${newer === 1 ? "run" : "runs"}: show`;
}

function newRows(fresh) {
  const keys = (root) => [...root.querySelectorAll("#page tr[data-key]")].map((row) => row.dataset.key);
  const known = new Set(keys(document));
  return keys(fresh).filter((key) => !known.has(key)).length;
}

document.addEventListener("change", (event) => {
  if (!event.target.matches?.("input[name=id][form=bulk]")) return;
  if (pending && !selection().length) place(pending, true);
  else if (!pending) selected(0);
  else selected(newRows(markup(pending)));
});
document.addEventListener("click", (event) => {
  if (pending && event.target.matches?.("[data-newer]")) place(pending, true);
});

function place(html, all) {
  const fresh = markup(html);
  const rows = selection().map((box) => box.closest("tr"));
  const hold = rows.length > 0 && !all;
  pending = hold ? html : "";
  const newer = hold ? newRows(fresh) : 0;
  for (const row of rows) row.dataset.keep = "";
  const focused = document.activeElement;
  const around = [];
  for (let e = focused; e && e !== document.body; e = e.parentElement) around.push(e);
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = hold && part.id === "page" ? null : fresh.getElementById(part.id);
    if (next) morph(part, next);
  }
  for (const row of rows) delete row.dataset.keep;
  // What was moved has the focus again; what has gone leaves it to the part of the page around it.
  const kept = around.find((e) => e.isConnected);
  if (kept && document.activeElement !== focused) {
    if (kept !== focused && !kept.hasAttribute("tabindex")) kept.tabIndex = -1;
    kept.focus({ preventScroll: true });
  }
  times();
  again();
  selected(newer);
  document.dispatchEvent(new Event("placed"));
}

// A part that is not whole yet says after how many milliseconds to look again.
function again() {
  const wait = document.querySelector("[data-again]")?.dataset.again;
  if (wait) setTimeout(refresh, Number(wait));
}
again();

// One tab of a browser listens and tells the others: a browser opens only a few connections to a server.
const channel = new BroadcastChannel(`carillon${base}`);
let state = "";

function show(next) {
  state = next;
  document.body.dataset.stream = held ? "held" : next;
  const word = button?.querySelector("[data-stream]");
  if (word) word.textContent = held ? "Paused" : next === "off" ? "Reconnecting" : "Live";
}

channel.addEventListener("message", ({ data }) => {
  if (data === "who") {
    if (leading) channel.postMessage(state);
  } else if (data === "change") refresh();
  else show(data);
});

let leading = false;
let leave = null; // gives up waiting for, or being, the one that listens

function tell(word) {
  channel.postMessage(word);
  if (word === "change") refresh();
  else show(word);
}

function listen() {
  if (leave) return;
  const gone = new AbortController();
  leave = () => gone.abort();
  const hear = () => new Promise((done) => {
    leading = true;
    const stream = new EventSource(`${base}/events`);
    stream.addEventListener("open", () => tell("on"));
    stream.addEventListener("error", () => tell("off"));
    stream.addEventListener("change", () => tell("change"));
    gone.signal.addEventListener("abort", () => { stream.close(); leading = false; done(); });
  });
  channel.postMessage("who");
  if (navigator.locks) navigator.locks.request(`carillon${base}`, { signal: gone.signal }, () => (gone.signal.aborted ? undefined : hear())).catch(() => {});
  else hear();
}

function stop() {
  leave?.();
  leave = null;
}

// A page that was hidden for a minute gets no updates. When it is shown again, it loads first.
let away = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(away);
  if (document.hidden) {
    away = setTimeout(() => { stop(); stale = true; }, 60_000);
    return;
  }
  listen();
  if (stale) refresh();
});
addEventListener("pagehide", stop);
addEventListener("pageshow", (event) => { if (event.persisted) { listen(); refresh(); } });

document.addEventListener("submit", (event) => {
  if (event.defaultPrevented) return;
  going = Date.now();
  asking.abort();
  asking = new AbortController();
});

function hold() {
  held = !held;
  button?.setAttribute("aria-pressed", String(held));
  show(state);
  if (!held) refresh();
}
document.addEventListener("hold", hold);
if (button) {
  button.hidden = false;
  button.addEventListener("click", hold);
}

// Progress comes with the workers' heartbeats, which change no row: look now and then while something runs.
setInterval(() => { if (document.querySelector("#page :is(progress, .badge.processing)")) refresh(); }, 3000);
// Nor do lines of a log.
setInterval(() => { if (document.querySelector("#page [data-follow]")) refresh(); }, 1000);

// What was done is said once.
const here = new URL(location.href);
if (here.searchParams.has("did")) {
  here.searchParams.delete("did");
  here.searchParams.delete("undo");
  history.replaceState(null, "", here);
}
listen();
times();
setInterval(times, 1000);
// What scrolls sideways shows the place of this page: the navigation and the tabs on a narrow screen, and graphs.
for (const wide of document.querySelectorAll(".nav, .tabs, .graph")) {
  const current = wide.querySelector("[aria-current], .here")?.getBoundingClientRect();
  if (current) wide.scrollLeft += current.left - wide.getBoundingClientRect().left - (wide.clientWidth - current.width) / 2;
}
for (const tail of document.querySelectorAll("[data-tail]")) tail.scrollTop = tail.scrollHeight;
