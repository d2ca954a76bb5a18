// Forms: morph.js does not change a form with input until it is sent, and a form is sent once. A form with data-preview
// shows what it would do while the user types: the part that its button with that formaction answers with. Code can
// be copied.
import { markup, morph } from "./morph.js";
import { times, zone } from "./time.js";

document.addEventListener("input", (event) => {
  const form = event.target.closest?.("form");
  if (!form || form.matches(".search")) return;
  form.dataset.dirty = "";
  if (form.dataset.preview) later(form);
});

// Sent twice is done twice: the second click is not taken.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if ("sent" in form.dataset) event.preventDefault();
  form.dataset.sent = "";
  delete form.dataset.dirty;
  setTimeout(() => delete form.dataset.sent, 4000);
});

// A filter in a form of links is applied as soon as it is chosen.
document.addEventListener("change", (event) => {
  if (event.target.matches?.("form[data-apply] select, form[data-apply] input[type=checkbox]")) event.target.form.requestSubmit();
});

let timer = 0;
let asked = 0;
function later(form) {
  clearTimeout(timer);
  timer = setTimeout(() => preview(form), 300);
}

async function preview(form) {
  const mine = ++asked;
  const body = new URLSearchParams(new FormData(form));
  body.set("do", "preview");
  try {
    const answer = await fetch(form.action, { method: "POST", body });
    const fresh = markup(await answer.text());
    if (mine !== asked) return;
    for (const id of form.dataset.preview.split(" ")) {
      const next = fresh.getElementById(id);
      const old = document.getElementById(id);
      if (next && old) morph(old, next);
    }
    for (const fault of form.querySelectorAll("[data-fault]")) {
      fault.textContent = fresh.querySelector(`[data-fault="${CSS.escape(fault.dataset.fault)}"]`)?.textContent ?? "";
      const folded = fault.closest("details");
      if (folded && fault.textContent) folded.open = true;
    }
    times();
  } catch {
    // The button still works.
  }
}

// The reader's zone, for times that are meant on their clock.
function tellZone() {
  for (const field of document.querySelectorAll("input[data-my-zone]")) if (!field.value) field.value = zone;
  for (const choice of document.querySelectorAll("option[data-my-zone]")) {
    if (choice.value) continue;
    choice.value = choice.textContent = zone;
    choice.hidden = choice.disabled = false;
    if ("first" in choice.dataset) choice.selected = true;
  }
}

function copies() {
  if (!navigator.clipboard) return;
  for (const box of document.querySelectorAll(".snippet")) {
    if (box.querySelector(".copy")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy small";
    button.dataset.keep = "";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(box.querySelector("pre").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    box.append(button);
  }
}

function ready() {
  tellZone();
  copies();
}
document.addEventListener("placed", ready);
ready();
