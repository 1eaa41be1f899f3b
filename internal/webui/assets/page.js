"use strict";
// The server sends the parts of the page that changed. Without this script, a reload shows them.
const live = document.getElementById("live");
let stream = null;

// withoutContent is an element without its content.
const withoutContent = (e) => e.cloneNode(false);
const ownText = (e) => [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE).map((n) => n.data.trim()).filter(Boolean).join("|");

// swap makes old look like fresh. It keeps each element that has not changed, and so the focus and the selection.
function swap(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.children.length === 0 || !withoutContent(old).isEqualNode(withoutContent(fresh)) || ownText(old) !== ownText(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  const before = [...old.children], after = [...fresh.children];
  after.forEach((child, i) => (before[i] ? swap(before[i], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

function show(part) {
  const old = document.getElementById(part.id);
  const fresh = new DOMParser().parseFromString(part.html, "text/html").body.firstElementChild;
  if (!old || !fresh) {
    location.reload(); // the page has other parts now
    return;
  }
  const focused = document.activeElement && document.activeElement.id;
  swap(old, document.adoptNode(fresh));
  if (focused && document.activeElement.id !== focused) {
    const again = document.getElementById(focused);
    if (again) again.focus({ preventScroll: true });
  }
  if (fresh.dataset.title) document.title = fresh.dataset.title + " - druid";
}

function say(text, old) {
  live.textContent = text;
  document.body.classList.toggle("old", old);
}

// failed says why no changes come. A browser tries again unless the server refused.
function failed(e) {
  if (e.target.readyState === EventSource.CLOSED) {
    stream = null;
    say("kubectl druid ui refuses this page. What you see is old. Open the address that kubectl druid ui printed.", true);
    return;
  }
  say("kubectl druid ui does not answer. What you see is old. If it has ended, start it again.", true);
}

function open() {
  if (stream || document.hidden || !document.body.dataset.live) return;
  stream = new EventSource(document.body.dataset.live);
  stream.addEventListener("open", () => say("Live", false));
  stream.addEventListener("part", (e) => show(JSON.parse(e.data)));
  stream.addEventListener("error", failed);
}

function close() {
  if (stream) stream.close();
  stream = null;
}

// A click on a bar chooses its time.
document.addEventListener("click", (e) => {
  const bar = e.target.closest(".bar"), at = document.getElementById("at");
  if (!bar || !at) return;
  const box = bar.getBoundingClientRect(), from = Number(bar.dataset.from), to = Number(bar.dataset.to);
  const seconds = Math.round(from + ((e.clientX - box.left) / box.width) * (to - from));
  at.value = new Date(seconds * 1000).toISOString().slice(0, 19);
  at.form.requestSubmit();
});

// A browser opens few connections to a server. A page that is not visible needs none.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
window.addEventListener("pagehide", close);
window.addEventListener("pageshow", open);
