// Counts times on, and says them in the reader's zone. The words are those of the server (words.go).

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
const minute = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const utc = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone: "UTC" });

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function times() {
  for (const place of document.querySelectorAll("[data-zone]")) say(place, zone);
  for (const link of document.querySelectorAll("a[data-my-zone]")) {
    const to = new URL(link.href);
    to.searchParams.set("zone", zone);
    if (link.href !== to.href) link.href = to.href;
  }
  for (const t of document.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if ("rel" in t.dataset) {
      say(t, relative(at));
      const title = `${absolute.format(at)}\n${utc.format(at)} UTC`;
      if (t.title !== title) t.title = title;
    } else if ("since" in t.dataset) {
      say(t, rough(Math.max(0, (Date.now() - at) / 1000)));
    } else if ("abs" in t.dataset) {
      say(t, absolute.format(at));
      t.title = `${utc.format(at)} UTC`;
    } else if ("minute" in t.dataset) {
      say(t, minute.format(at));
    } else if ("clock" in t.dataset) {
      say(t, clock.format(at));
    }
  }
}

export const said = (iso) => absolute.format(new Date(iso));
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
