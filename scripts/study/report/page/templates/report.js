// Sorting, filtering and choosing columns. Without scripts, the tables show every row and column.
const source = document.getElementById("datatables").textContent;
const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
const { jQuery: $ } = await import(address);
URL.revokeObjectURL(address);

const PAGE_ROWS = 25; // of a longer table; a table whose rows are linked to has one page

const dark = matchMedia("(prefers-color-scheme: dark)");
const setDark = () => document.documentElement.classList.toggle("dark", dark.matches); // which DataTables looks at
dark.addEventListener("change", setDark);
setDark();

const words = (head) => head.querySelector(".dt-column-title").textContent;

function enhance(table) {
  const isPaged = table.tBodies[0].rows.length > PAGE_ROWS && !table.querySelector("tr[id]");
  const made = $(table).DataTable({
    autoWidth: false,
    order: [],
    paging: isPaged,
    pageLength: PAGE_ROWS,
    lengthMenu: [PAGE_ROWS, 100, { label: "all", value: -1 }],
    layout: {
      topStart: {
        buttons: [
          { extend: "colvis", text: "Columns", columnText: (_, index, title) => title, background: false, fade: 0 },
          { extend: "colvisGroup", text: "All columns", show: ":hidden" },
          { extend: "colvisRestore", text: "Main columns" },
        ],
      },
      topEnd: "search",
      bottomStart: "info",
      bottomEnd: isPaged ? ["pageLength", "paging"] : null,
    },
    columnControl: [{ target: 0, content: ["searchDropdown"] }],
    language: { search: "Filter rows:", entries: { _: "rows", 1: "row" } },
  });
  label(made, table.dataset.name);
  return made;
}

// Names that screen readers say: DataTables gives the same ones to all tables and columns.
function label(made, name) {
  const container = made.table().container();
  const scroll = table(container);
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `Table: ${name}`);
  scroll.tabIndex = 0; // so that a wide table scrolls by keyboard
  made.columns().every(function () {
    const button = this.header().querySelector(".dtcc-button");
    button.setAttribute("aria-label", `Filter by ${words(this.header())}`);
    button.title = "Filter by this column";
  });
  const pages = () => container.querySelector("nav")?.setAttribute("aria-label", `Pages of ${name}`);
  made.on("draw", pages);
  made.on("column-visibility", () => setTimeout(labelOpened)); // after the list shows it
  pages();
}

const table = (container) => container.querySelector(".dt-layout-table > .dt-layout-cell") ?? container;

// What DataTables makes when it opens: the fields of a column's filter, and the list of columns.
function labelOpened() {
  const button = document.querySelector(".dtcc-button[aria-expanded=true]");
  for (const field of document.querySelectorAll(".dtcc-dropdown :is(input, select):not([aria-label])")) {
    const what = field.localName === "select" ? "How to compare" : "Value";
    field.setAttribute("aria-label", `${what}: ${button ? words(button.closest("th")) : ""}`);
  }
  for (const list of document.querySelectorAll(".dt-button-collection")) {
    list.setAttribute("aria-label", "Columns");
    list.querySelector("[role=menu]")?.setAttribute("role", "group");
    for (const each of list.querySelectorAll("button")) {
      each.setAttribute("aria-pressed", each.classList.contains("dt-button-active"));
    }
  }
}
new MutationObserver(labelOpened).observe(document.body, { childList: true, subtree: true });

const tables = [...document.querySelectorAll("table.data")].map(enhance);

// A link to a row that is filtered out shows it again.
document.addEventListener("click", (event) => {
  const id = event.target.closest?.("a[href^='#']")?.hash.slice(1);
  if (!id) return;
  if (!document.getElementById(id)) {
    const holder = tables.find((made) => made.rows(`#${CSS.escape(id)}`).any());
    holder?.search("").columns().ccSearchClear().draw();
  }
  const folded = document.getElementById(id)?.closest("details");
  if (folded) folded.open = true;
});

// Print has every row, and wide tables in smaller letters.
const PRINT = { width: 1047, letters: 9.3, smallest: 5 }; // CSS pixels: of A4 across without margins; 7 pt; 3.75 pt
let lengths = [];
addEventListener("beforeprint", () => {
  lengths = tables.map((made) => made.page.len());
  for (const made of tables) {
    made.page.len(-1).draw();
    const table = made.table().node();
    const shown = parseFloat(getComputedStyle(table).fontSize);
    const fitting = (shown * PRINT.width) / table.scrollWidth;
    const size = Math.max(PRINT.smallest, Math.min(PRINT.letters, fitting));
    table.style.setProperty("--print-size", `${size}px`);
  }
});
addEventListener("afterprint", () => tables.forEach((made, n) => made.page.len(lengths[n]).draw()));

document.documentElement.dataset.ready = "yes";
