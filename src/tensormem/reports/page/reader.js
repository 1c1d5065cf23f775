// Owns: getting the data: from this file, in base64, or from the server that the page came from; and inflating it.
// In pieces, so that the page stays alive meanwhile. Must not know: what is in it.

const PIECE = 1 << 20; // a multiple of 4: base64 can be cut there

function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = characters.charCodeAt(at);
  return bytes;
}

function embeddedStream(element) {
  const text = element.firstChild?.data ?? "";
  let at = 0;
  return new ReadableStream({
    async pull(controller) {
      if (at >= text.length) {
        element.remove();
        controller.close();
        return;
      }
      controller.enqueue(decodeBase64(text.slice(at, at + PIECE)));
      at += PIECE;
      await pause();
    },
  });
}

async function inflate(stream, size) {
  const bytes = new Uint8Array(size);
  const reader = stream.pipeThrough(new DecompressionStream("deflate")).getReader();
  let filled = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    bytes.set(next.value, filled);
    filled += next.value.length;
  }
  if (filled !== size) throw new Error(`the data has ${filled} bytes and says ${size}`);
  return bytes;
}

function splitHead(bytes) {
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return { head, planes: bytes.subarray(4 + length) };
}

/** The data of the page, or of a window of a served trace: {head, planes}. */
async function readData(range) {
  const element = document.getElementById("data");
  if (element) return splitHead(await inflate(embeddedStream(element), Number(element.dataset.size)));
  const query = range ? `?from=${Math.floor(range[0])}&to=${Math.ceil(range[1])}` : "";
  const answer = await fetch(`data${query}`);
  if (!answer.ok) throw new Error(await answer.text());
  return splitHead(await inflate(answer.body, Number(answer.headers.get("x-size"))));
}
