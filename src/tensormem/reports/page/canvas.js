// Owns: a canvas as a view: its size in real pixels, when it is drawn again, the colours of the theme, the readout
// under the pointer. Must not know: what is drawn.

const theme = {
  colors: {},
  groups: [],
  /** Reads the colours of the style sheet; the canvas cannot use them by name. */
  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "soft", "faint", "line", "panel", "accent", "alarm", "hole", "page"]) {
      this.colors[name] = style.getPropertyValue(`--${name}`).trim();
    }
    this.groups = Array.from({ length: MOST_GROUPS }, (_, place) => style.getPropertyValue(`--group-${place}`).trim());
    this.font = `12px ${style.getPropertyValue("--font").trim()}`;
    this.smallFont = `11px ${style.getPropertyValue("--font").trim()}`;
  },
  /** The colour of a group; the one that gathers the others is grey. */
  group(grouping, place) {
    const isOthers = grouping.merged > 0 && place === grouping.size - 1;
    return isOthers ? this.groups[MOST_GROUPS - 1] : this.groups[place % (MOST_GROUPS - 1)];
  },
};

class CanvasView {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.frames = 0;
    this.isWaiting = false;
    this.isMeasured = false;
    new ResizeObserver(() => {
      this.isMeasured = false;
      this.invalidate();
    }).observe(canvas);
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => {
      readout.hide();
      this.leave?.();
    });
  }

  /** Draws in the next frame, once, however often it is asked. */
  invalidate() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.drawNow();
    });
  }

  /** Its size, asked for only when it has changed: the answer makes the browser lay out the page. */
  measure(ratio) {
    if (this.isMeasured && ratio === this.ratio) return;
    this.isMeasured = true;
    this.ratio = ratio;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
  }

  drawNow() {
    const ratio = window.devicePixelRatio || 1;
    this.measure(ratio);
    if (!this.canvas.width || !this.canvas.height) return;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.context.font = theme.smallFont;
    this.draw(this.context);
    this.frames += 1;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const lines = this.hover?.(event.clientX - box.left, event.clientY - box.top, event);
    if (lines?.length) readout.show(lines, event.clientX, event.clientY);
    else readout.hide();
  }

  say(text) {
    this.context.fillStyle = theme.colors.soft;
    this.context.font = theme.font;
    this.context.textAlign = "center";
    this.context.fillText(text, this.width / 2, this.height / 2);
    this.context.textAlign = "left";
  }

  /** Text that fits a width, or nothing. */
  label(text, x, y, room) {
    if (room < 18) return;
    let shown = text;
    let width = this.context.measureText(shown).width;
    if (width > room) {
      const letters = Math.floor((text.length * room) / width) - 1;
      if (letters < 3) return;
      shown = `${text.slice(0, letters)}…`;
    }
    this.context.fillText(shown, x, y);
  }
}

/** The few lines beside the pointer; always text, never HTML. */
const readout = {
  show(lines, x, y) {
    const box = document.getElementById("readout");
    box.replaceChildren(...lines.map((line) => element("div", "", line)));
    box.hidden = false;
    const { offsetWidth, offsetHeight } = box;
    box.style.left = `${x + 16 + offsetWidth > innerWidth ? Math.max(4, x - 12 - offsetWidth) : x + 16}px`;
    box.style.top = `${y + 16 + offsetHeight > innerHeight ? Math.max(4, y - 12 - offsetHeight) : y + 16}px`;
  },
  hide() {
    document.getElementById("readout").hidden = true;
  },
};

/** An element with a class and with children that are text or elements. */
function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}
