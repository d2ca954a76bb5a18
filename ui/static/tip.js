// What a mark of a chart says, beside the pointer.
import { said } from "./time.js";

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

const half = 12; // pixels from the pointer

document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest?.("svg [data-tip]");
  if (!mark || event.pointerType === "touch") {
    tip.hidden = true;
    return;
  }
  const text = mark.dataset.at ? `${said(mark.dataset.at)}\n${mark.dataset.tip}` : mark.dataset.tip;
  if (tip.textContent !== text) tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(innerWidth - width - 4, Math.max(4, event.clientX - width / 2))}px`;
  tip.style.top = `${event.clientY - height - half < 4 ? event.clientY + half : event.clientY - height - half}px`;
}, { passive: true });
document.addEventListener("pointerleave", () => { tip.hidden = true; });
