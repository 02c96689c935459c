// What screen readers and keyboards need, and the theme does not say.
addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = 2;
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0; // scrolls by keyboard
  }
});
