// Keeps a page current: listens to the server's events, fetches the page's parts again, and counts times on. Without
// it everything still works, by reloading.

const parser = new DOMParser();
const policy = globalThis.trustedTypes?.createPolicy("fragment", { createHTML: (html) => html });

let fetching = false;
let again = false;

// A part is left alone while somebody writes in it or has opened something there.
function inUse(part) {
  return part.querySelector("details[open]") || part.querySelector("input:focus, textarea:focus");
}

async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Fragment": "1" } });
    if (answer.ok) {
      const html = await answer.text();
      place(parser.parseFromString(policy ? policy.createHTML(html) : html, "text/html"));
    }
  } catch {
    // The server is away; the stream says so.
  } finally {
    fetching = false;
    if (again) {
      again = false;
      refresh();
    }
  }
}

function place(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (!next || inUse(part) || part.dataset.was === next.innerHTML) continue;
    part.dataset.was = next.innerHTML;
    const restore = [focused(part), ...scrolled(part)];
    part.replaceChildren(...next.childNodes);
    for (const again of restore) again();
  }
  tell();
}

// Who walks through a part by keyboard stays where they are.
function focused(part) {
  const reachable = "a, button, summary";
  const place = [...part.querySelectorAll(reachable)].indexOf(document.activeElement);
  return () => {
    if (place >= 0) part.querySelectorAll(reachable)[place]?.focus({ preventScroll: true });
  };
}

// What was scrolled stays so; a log that stood at its end goes on standing there.
function scrolled(part) {
  return [...part.querySelectorAll(".scroll")].map((box, i) => {
    const { scrollLeft, scrollTop } = box;
    const atEnd = "tail" in box.dataset && box.scrollHeight - scrollTop - box.clientHeight < 40;
    return () => {
      const now = part.querySelectorAll(".scroll")[i];
      if (!now) return;
      now.scrollLeft = scrollLeft;
      now.scrollTop = atEnd ? now.scrollHeight : scrollTop;
    };
  });
}

// The same words as the server's.
function rough(seconds) {
  const s = Math.trunc(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.trunc(s / 60)} min`;
  if (s < 86400) return `${Math.trunc(s / 3600)} h ${Math.trunc(s / 60) % 60} min`;
  return `${Math.trunc(s / 86400)} d ${Math.trunc(s / 3600) % 24} h`;
}

function relative(at) {
  const seconds = (at - Date.now()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${rough(seconds)}` : `${rough(-seconds)} ago`;
}

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tell() {
  for (const t of document.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if ("rel" in t.dataset) {
      say(t, relative(at));
      t.title = absolute.format(at);
    } else if ("abs" in t.dataset) {
      say(t, absolute.format(at));
    } else if ("clock" in t.dataset) {
      say(t, clock.format(at));
    }
  }
}

function listen() {
  const stream = new EventSource(document.body.dataset.events);
  const state = (s) => { document.body.dataset.state = s; };
  stream.addEventListener("open", () => state("on"));
  stream.addEventListener("error", () => state("off"));
  stream.addEventListener("change", refresh);
  return stream;
}

// Hidden pages need no news; when they are looked at again, they look first.
let stream = listen();
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream?.close();
    stream = null;
  } else if (!stream) {
    stream = listen();
  }
});

// A click elsewhere closes what was opened.
document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.menu[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const open of document.querySelectorAll("details.menu[open]")) open.open = false;
});

// Progress comes with the workers' beats, which change no row: look now and then while something runs.
setInterval(() => { if (!document.hidden && document.querySelector("progress, .pill.processing")) refresh(); }, 3000);
setInterval(tell, 1000);
for (const zone of document.querySelectorAll("[data-zone]")) say(zone, Intl.DateTimeFormat().resolvedOptions().timeZone);
tell();
for (const tail of document.querySelectorAll("[data-tail]")) tail.scrollTop = tail.scrollHeight;
