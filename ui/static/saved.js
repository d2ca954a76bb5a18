// Filters that a user has named, on the lists of jobs and runs. The browser stores them, by user and list.

const place = document.querySelector("[data-saved]");
const store = `carillon filters ${location.pathname} ${document.body.dataset.user}`;
const most = 30;
const passing = new Set(["cursor", "back", "after", "did", "bulk", "n", "no", "why"]); // not part of a filter

// The filter of this page.
function here() {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of [...query]) if (!value || passing.has(name)) query.delete(name);
  if (!query.has("from") && !query.has("to")) query.delete("zone");
  query.sort();
  return query.toString();
}

function read() {
  try {
    return (JSON.parse(localStorage.getItem(store)) ?? []).filter((f) => typeof f.name === "string" && typeof f.query === "string");
  } catch {
    return []; // not ours, or the browser stores nothing
  }
}

function write(list) {
  try {
    localStorage.setItem(store, JSON.stringify(list));
  } catch {
    return false;
  }
  show();
  return true;
}

function make(kind, properties, ...children) {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...children);
  return element;
}

function saved(filter) {
  const link = make("a", { className: "button small", href: `${location.pathname}?${new URLSearchParams(filter.query)}` }, filter.name);
  if (filter.query === here()) link.setAttribute("aria-current", "true");
  const remove = make("button", { className: "quiet small", type: "button", title: "Remove" }, "×");
  remove.setAttribute("aria-label", `Remove the filter ${filter.name}`);
  remove.addEventListener("click", () => {
    if (write(read().filter((f) => f.name !== filter.name))) (place.querySelector("a, summary") ?? document.getElementById("main")).focus();
  });
  return make("span", { className: "nowrap" }, link, remove);
}

// The menu that saves this filter.
function menu() {
  const name = make("input", { id: "filter-name", maxLength: 60, required: true, autocomplete: "off" });
  name.addEventListener("input", () => name.setCustomValidity(""));
  const label = make("label", { htmlFor: name.id }, "Name", make("small", {}, "stored in this browser"));
  const form = make("form", { className: "pop" }, make("div", { className: "field" }, label, name), make("button", { className: "primary" }, "Save"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = name.value.trim();
    if (!text) return;
    const list = [...read().filter((f) => f.name !== text), { name: text, query: here() }].slice(-most);
    if (write(list)) place.querySelector("[aria-current]")?.focus();
    else {
      name.setCustomValidity("This browser stores no filters.");
      name.reportValidity();
    }
  });
  return make("details", { className: "menu" }, make("summary", { className: "button quiet small" }, "Save filter…"), form);
}

function show() {
  const list = read();
  const fresh = list.map(saved);
  if (here() && !list.some((f) => f.query === here())) fresh.push(menu());
  place.replaceChildren(...fresh);
  place.hidden = fresh.length === 0;
}

if (place) {
  show();
  addEventListener("storage", (event) => { if (event.key === store) show(); });
}
