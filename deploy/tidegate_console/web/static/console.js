// Keys, and no new contents under somebody's hands. The pages work without it.
(() => {
  "use strict";
  let waits = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    if (event.key === "/") {
      const filter = document.querySelector("[data-filter]");
      if (filter) { event.preventDefault(); filter.focus(); filter.select(); }
    } else if (waits) {
      const link = document.querySelector(`header a[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
    }
    waits = event.key === "g";
  });
  // Whoever reads a row with the keyboard, or has marked text, keeps it until the next change.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const live = event.target;
    if (live.id !== "live") return;
    const marked = document.getSelection();
    if (live.contains(document.activeElement) || (marked && !marked.isCollapsed)) event.preventDefault();
  });
  // An error of a part of a page is shown in its place.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status >= 400 && event.target.id !== "live") event.detail.shouldSwap = true;
  });
})();
