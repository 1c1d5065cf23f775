// Owns: the tables of blocks: the largest, the longest-lived, those never given back, those that are out at the moment.
// Must not know: how a block is shown elsewhere.

const MOST_ROWS = 100;
const TABLES = {
  largest: ["Largest", "size", () => true],
  longest: ["Longest-lived", "lived", () => true],
  leaked: ["Left at the end", "size", (block, { model }) => model.blocks.end[block] >= model.count],
  now: ["At this moment", "size", (block, { model, moment }) => model.isLive(block, moment)],
};
const COLUMNS = {
  size: ["Size", (block, model) => model.bytesOf(block)],
  tag: ["Tag", (block, model) => model.tagName(model.events.tag[model.blocks.event[block]])],
  resource: ["Resource", (block, model) => model.resourceName(model.events.resource[model.blocks.event[block]])],
  began: ["Began", (block, model) => model.startOf(block)],
  lived: ["Lived", (block, model) => model.endOf(block) - model.startOf(block)],
  address: ["Address", (block, model) => model.events.address[model.blocks.event[block]]],
};

class TablesView {
  constructor(root, page) {
    this.page = page;
    this.root = root;
    this.which = "largest";
    this.sort = { column: "size", sign: -1 };
    this.rows = [];
    root.addEventListener("keydown", (event) => this.key(event));
  }

  open(model) {
    this.model = model;
    this.show(model.leaked.count && !model.isWindow ? "leaked" : "largest");
  }

  show(which) {
    this.which = which;
    this.sort = { column: TABLES[which][1], sign: -1 };
    this.refresh();
  }

  /** The first rows in the order that was asked for, and how many there are in all. */
  select() {
    const { page, model, sort } = this;
    const value = COLUMNS[sort.column][1];
    const wanted = TABLES[this.which][2];
    const kept = [];
    let count = 0;
    for (let block = 0; block < model.blocks.count; block += 1) {
      if (model.depthOf(block) !== 0 || !wanted(block, page) || (page.found && !page.found.mask[block])) continue;
      count += 1;
      const own = value(block, model);
      if (kept.length === MOST_ROWS && !comesBefore(own, kept[MOST_ROWS - 1].own, sort.sign)) continue;
      let at = kept.length;
      while (at > 0 && comesBefore(own, kept[at - 1].own, sort.sign)) at -= 1;
      kept.splice(at, 0, { block, own });
      kept.length = Math.min(kept.length, MOST_ROWS);
    }
    return { rows: kept.map((one) => one.block), count };
  }

  refresh() {
    const { rows, count } = this.select();
    this.rows = rows;
    const head = element("tr", "", ...Object.entries(COLUMNS).map(([name, [title]]) => this.headCell(name, title)));
    const body = rows.map((block) => this.row(block));
    const table = element("table", "", element("thead", "", head), element("tbody", "", ...body));
    this.root.replaceChildren(table, element("p", "note", this.note(count)));
    this.markSelected();
  }

  note(count) {
    if (count === 0 && this.page.found) return "No block of these is marked.";
    if (count === 0) return this.which === "leaked" ? "Everything was given back." : "No blocks here.";
    if (count > MOST_ROWS) return `${MOST_ROWS} of ${formatCount(count)} blocks`;
    return plural(count, "block");
  }

  headCell(name, title) {
    const isSorted = this.sort.column === name;
    const button = element("button", "", title, isSorted ? (this.sort.sign < 0 ? " ↓" : " ↑") : "");
    button.addEventListener("click", () => {
      this.sort = { column: name, sign: isSorted ? -this.sort.sign : name === "tag" || name === "resource" ? 1 : -1 };
      this.refresh();
    });
    const cell = element("th", `column-${name}`, button);
    cell.setAttribute("aria-sort", isSorted ? (this.sort.sign < 0 ? "descending" : "ascending") : "none");
    return cell;
  }

  row(block) {
    const { model } = this;
    const event = model.blocks.event[block];
    const began = formatMoment(model.startOf(block), model.unit, model.end - model.start);
    const lived = formatSpan(model.endOf(block) - model.startOf(block), model.unit);
    const address = model.events.address[event];
    const swatch = element("i", "swatch");
    swatch.style.background = this.page.colorOf(block);
    const cells = [
      element("td", "number", formatBytes(model.bytesOf(block))),
      element("td", "name", swatch, model.tagName(model.events.tag[event])),
      element("td", "name", model.resourceName(model.events.resource[event])),
      element("td", "number", model.blocks.start[block] < 0 ? "before" : began),
      element("td", "number", model.blocks.end[block] >= model.count ? "to the end" : lived),
      element("td", "number", address ? formatAddress(address) : "–"),
    ];
    const row = element("tr", "", ...cells);
    row.tabIndex = -1;
    row.dataset.block = block;
    row.addEventListener("click", () => this.page.select(block));
    return row;
  }

  markSelected() {
    for (const row of this.root.querySelectorAll("tbody tr")) {
      const isSelected = Number(row.dataset.block) === this.page.selected;
      row.classList.toggle("selected", isSelected);
      row.setAttribute("aria-selected", String(isSelected));
    }
    const at = this.rows.includes(this.page.selected) ? this.rows.indexOf(this.page.selected) : 0;
    const row = this.root.querySelectorAll("tbody tr")[at];
    if (row) row.tabIndex = 0;
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tbody tr");
    if (!row || (!step && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") {
      this.page.goTo(this.model.blocks.start[Number(row.dataset.block)]);
      return;
    }
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    if (!next) return;
    next.focus();
    this.page.select(Number(next.dataset.block));
  }
}

function comesBefore(one, two, sign) {
  return typeof one === "string" ? one.localeCompare(two) * sign < 0 : (one - two) * sign < 0;
}
