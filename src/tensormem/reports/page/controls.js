// Owns: what is pressed: buttons of which one is chosen, keys, the search field, light and dark.
// Must not know: what the page does then.

const STACKED_BY = { space: "Space", tag: "Tag", resource: "Resource", block: "Block" };
const AXES = { time: "Time", events: "Events" };
const FLAME_BY = { tag: "Owner", stack: "Calls" };
const FLAME_OF = { peak: "Peak", moment: "Moment", all: "All", leaked: "Left" };
const KEYS = [
  ["← →", "one event; Shift: 100"], ["Home End", "first and last event"], ["p", "to the peak"],
  ["+ −", "zoom around the moment"], ["a d", "move the chart"], ["0", "show everything"],
  ["1 2 3 4", "how it is stacked"], ["s", "select the event's block"], ["[ ]", "select its neighbour"],
  ["/", "search"], ["Esc", "clear search and selection"], ["t", "light or dark"], ["?", "these keys"],
];

function byId(id) {
  return document.getElementById(id);
}

class Controls {
  constructor(page) {
    this.page = page;
    this.followSystem();
    for (const [id, action] of Object.entries(this.buttons())) {
      byId(id).addEventListener("click", () => page.model && action());
    }
    byId("search").addEventListener("input", (event) => page.model && page.search(event.target.value));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  buttons() {
    const { page } = this;
    return {
      theme: () => this.switchTheme(),
      help: () => this.showKeys(),
      first: () => page.goTo(0),
      last: () => page.goTo(Infinity),
      back: () => page.goTo(page.moment - 1),
      next: () => page.goTo(page.moment + 1),
      "to-peak": () => page.goTo(page.model.peak.event),
      "zoom-in": () => page.zoomMoment(0.5),
      "zoom-out": () => page.zoomMoment(2),
      "zoom-all": () => page.usage.reset(),
    };
  }

  /** Light or dark as the system is, until the user chooses. */
  followSystem() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => this.isChosen || this.setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", follow);
    follow();
  }

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    theme.read();
    this.page.themeChanged();
  }

  switchTheme() {
    this.isChosen = true;
    this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  }

  showKeys() {
    const dialog = byId("keys");
    const close = button("Close", () => dialog.close());
    dialog.replaceChildren(keyList(), element("p", "", close));
    dialog.showModal();
  }

  key(event) {
    if (!this.page.model || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (event.target === byId("search")) {
      if (event.key !== "Escape") return;
      event.target.blur();
    }
    const action = this.keys(event.shiftKey ? 100 : 1)[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  keys(step) {
    const { page } = this;
    return {
      ArrowLeft: () => page.goTo(page.moment - step),
      ArrowRight: () => page.goTo(page.moment + step),
      Home: () => page.goTo(0),
      End: () => page.goTo(Infinity),
      p: () => page.goTo(page.model.peak.event),
      "+": () => page.zoomMoment(0.5),
      "=": () => page.zoomMoment(0.5),
      "-": () => page.zoomMoment(2),
      0: () => page.usage.reset(),
      a: () => page.usage.pan(-0.25),
      d: () => page.usage.pan(0.25),
      s: () => page.select(page.moment < 0 ? -1 : page.model.blockOf[page.moment]),
      "[": () => page.selectBeside(-1),
      "]": () => page.selectBeside(1),
      1: () => page.setBy("space"),
      2: () => page.setBy("tag"),
      3: () => page.setBy("resource"),
      4: () => page.setBy("block"),
      "/": () => byId("search").focus(),
      Escape: () => page.clear(),
      t: () => this.switchTheme(),
      "?": () => this.showKeys(),
    };
  }

  /** Buttons of which one is chosen. */
  drawChoice(id, options, chosen, action, disabled = {}) {
    const buttons = Object.entries(options).map(([name, text]) => {
      const made = button(text, () => action(name));
      made.className = "";
      made.setAttribute("role", "radio");
      made.setAttribute("aria-checked", String(name === chosen));
      made.disabled = name in disabled;
      made.title = disabled[name] ?? "";
      made.dataset.value = name;
      return made;
    });
    byId(id).replaceChildren(...buttons);
  }

  /** All choices, as the page is now. */
  draw() {
    const { usage, flame, tables, model, by } = this.page;
    const redraw = (action) => (name) => {
      action(name);
      this.draw();
    };
    const axes = model.unit === "step" ? { ...AXES, time: "Steps" } : AXES;
    const noCalls = model.stacks.size ? {} : { stack: "The trace has no calls; record with --stacks." };
    const titles = Object.fromEntries(Object.entries(TABLES).map(([name, [title]]) => [name, title]));
    this.drawChoice("by", STACKED_BY, by, (name) => this.page.setBy(name));
    this.drawChoice("axis", axes, usage.axis, redraw((name) => usage.setAxis(name)));
    this.drawChoice("flame-by", FLAME_BY, flame.by, redraw((name) => flame.set(name, flame.of)), noCalls);
    this.drawChoice("flame-of", FLAME_OF, flame.of, redraw((name) => flame.set(flame.by, name)));
    this.drawChoice("table", titles, tables.which, redraw((name) => tables.show(name)));
  }
}
