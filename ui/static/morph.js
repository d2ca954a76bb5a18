// Makes a part of the page like another, changing as little as it can: what has the focus keeps it, what was opened
// stays open, what is being written stays as it is. Rows are identified by data-key or id.

const parser = new DOMParser();
const policy = globalThis.trustedTypes?.createPolicy("fragment", { createHTML: (html) => html });

export function markup(html) {
  return parser.parseFromString(policy ? policy.createHTML(html) : html, "text/html");
}

const key = (node) => node.nodeType === Node.ELEMENT_NODE ? node.dataset?.key ?? (node.id || null) : null;

// The user has typed in it, or is about to: it is theirs until they are done.
function theirs(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return false;
  if ("keep" in node.dataset) return true;
  return node.localName === "form" && ("dirty" in node.dataset || node.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"));
}

// It is left where it is even if it is gone from the fresh part.
const precious = (node) => node.nodeType === Node.ELEMENT_NODE && (theirs(node) || [...node.querySelectorAll("form")].some(theirs));

export function morph(old, fresh) {
  if (theirs(old) || old.isEqualNode(fresh)) return;
  if (old.localName === "time" && old.dateTime === fresh.dateTime) return; // its words are time.js's
  attributes(old, fresh);
  const atEnd = "tail" in old.dataset && old.scrollHeight - old.scrollTop - old.clientHeight < 40;
  children(old, fresh);
  if (atEnd) old.scrollTop = old.scrollHeight;
}

// What the reader or the scripts have put there. A row without its tabindex would lose the focus.
const ours = new Set(["open", "tabindex", "data-live"]);

function attributes(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!ours.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
}

function children(old, fresh) {
  const named = new Map();
  for (const child of old.children) if (key(child)) named.set(key(child), child);
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const name = key(next);
    const match = name ? named.get(name) : at && !key(at) && at.nodeType === next.nodeType && at.nodeName === next.nodeName ? at : null;
    if (!match) {
      old.insertBefore(document.importNode(next, true), at);
      continue;
    }
    named.delete(name);
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    if (match.nodeType === Node.ELEMENT_NODE) morph(match, next);
    else if (match.nodeValue !== next.nodeValue) match.nodeValue = next.nodeValue;
  }
  while (at) {
    const after = at.nextSibling;
    if (!precious(at)) at.remove();
    at = after;
  }
}
