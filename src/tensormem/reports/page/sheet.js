// Owns: a sheet of pixels that is written box by box: for pictures with more shapes than a canvas likes to draw.
// Must not know: what the boxes are of.

function parseColor(color) {
  const number = parseInt(color.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/** A colour as the four bytes of a pixel, made darker or lighter by a factor. */
function packColor([red, green, blue], factor, alpha = 255) {
  const part = (value) => Math.max(0, Math.min(255, Math.round(value * factor)));
  return ((alpha << 24) | (part(blue) << 16) | (part(green) << 8) | part(red)) >>> 0;
}

class Sheet {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.canvas = new OffscreenCanvas(width, height);
  }

  /** The sheet, wiped, if it has that size; otherwise a new one. */
  static blank(sheet, width, height) {
    if (sheet?.width !== width || sheet.height !== height) return new Sheet(width, height);
    sheet.pixels.fill(0);
    return sheet;
  }

  /** Columns from `left` up to and without `right`, rows from `top` up to and without `bottom`, in a packed colour. */
  fillBox(left, right, top, bottom, color) {
    const { pixels, width } = this;
    for (let row = top * width; row < bottom * width; row += width) {
      if (right - left > 8) pixels.fill(color, row + left, row + right);
      else for (let at = row + left; at < row + right; at += 1) pixels[at] = color;
    }
  }

  /** Lays it on a canvas, over what is there. */
  layOn(context, left, top, width, height) {
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
    context.drawImage(this.canvas, left, top, width, height);
  }
}
