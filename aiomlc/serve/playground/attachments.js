/** The images of the next message: chosen, pasted or dropped. */

import { button, byId, create } from "./dom.js";

const SENT_AS_THEY_ARE = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MAX_BYTES = 1 << 20; // A larger file is encoded again: a request has a limit, and so has the browser's storage.
const MAX_SIDE = 2048; // Pixels, then.
const QUALITY = 0.92;

/** Shows thumbnails of the images in the message box; `showNotice(text)` says what is wrong with a file. */
export class Attachments {
  #urls = []; // As `data:` URLs.
  #reading = Promise.resolve(); // Ends when all files so far have been read.
  #showNotice;

  constructor(showNotice) {
    this.#showNotice = showNotice;
    const input = byId("image-files");
    byId("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
    byId("prompt").addEventListener("paste", (event) => this.#takeFiles(event, event.clipboardData));
    const chat = byId("chat");
    chat.addEventListener("dragover", (event) => {
      if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
    chat.addEventListener("drop", (event) => this.#takeFiles(event, event.dataTransfer));
  }

  get urls() {
    return [...this.#urls];
  }

  get isEmpty() {
    return this.#urls.length === 0;
  }

  /** Waits until the files that were added have been read. */
  async settle() {
    await this.#reading;
  }

  /** Adds files, one after the other, so that they keep their order. */
  add(files) {
    for (const file of files) this.#reading = this.#reading.then(() => this.#read(file));
  }

  clear() {
    this.#urls = [];
    this.#show();
  }

  #takeFiles(event, { files, types }) {
    // Text that was copied from a document may come with a picture of itself.
    if (files.length === 0 || types.includes("text/plain")) return;
    event.preventDefault();
    this.add([...files]);
  }

  async #read(file) {
    try {
      this.#urls.push(await readImage(file));
    } catch {
      this.#showNotice(`${file.name} is no image that this browser can read; only text and images can be sent.`);
    }
    this.#show();
  }

  #show() {
    const list = byId("attachments");
    list.replaceChildren(...this.#urls.map((url, index) => this.#thumbnail(url, index)));
    list.hidden = this.isEmpty;
  }

  #thumbnail(url, index) {
    const remove = () => {
      this.#urls.splice(index, 1);
      this.#show();
      byId("prompt").focus();
    };
    const label = `Remove image ${index + 1}`;
    return create("li", {}, picture(url, index), button("×", remove, { className: "icon", attributes: { "aria-label": label } }));
  }
}

/** Returns a thumbnail. */
export function picture(url, index) {
  return create("img", { src: url, alt: `Image ${index + 1}` });
}

/** Returns a file as a `data:` URL; throws an error if it is no image. */
async function readImage(file) {
  const image = await createImageBitmap(file);
  const isSmall = file.size <= MAX_BYTES && SENT_AS_THEY_ARE.includes(file.type);
  return isSmall ? readUrl(file) : readUrl(await encode(image));
}

async function encode(image) {
  const scale = Math.min(1, MAX_SIDE / Math.max(image.width, image.height));
  const size = [image.width, image.height].map((length) => Math.max(1, Math.round(length * scale)));
  const canvas = new OffscreenCanvas(...size);
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; // Behind what is transparent.
  context.fillRect(0, 0, ...size);
  context.drawImage(image, 0, 0, ...size);
  return canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });
}

function readUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}
