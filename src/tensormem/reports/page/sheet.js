// Owns: a sheet of pixels that is written column by column: for pictures with more shapes than a canvas likes to draw.
// Must not know: what the columns are of.

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
  }

  /** Rows from `top` up to and without `bottom` of a column, in a packed colour. */
  fill(column, top, bottom, color) {
    const { pixels, width } = this;
    for (let at = top * width + column, end = bottom * width + column; at < end; at += width) pixels[at] = color;
  }

  /** Lays it on a canvas, over what is there. */
  layOn(context, left, top, width, height) {
    const canvas = new OffscreenCanvas(this.width, this.height);
    canvas.getContext("2d").putImageData(this.image, 0, 0);
    context.drawImage(canvas, left, top, width, height);
  }
}
