// Browsers start no worker from a page that was opened as a file. The theme's search, which is a
// worker, then runs in a hidden frame of the page, by this class with the interface of a Worker.
"use strict";

class FrameWorker extends EventTarget {
  #frame = document.createElement("iframe");
  #started;

  constructor(url) {
    super();
    this.#frame.hidden = true;
    document.body.append(this.#frame);
    const frameDocument = this.#frame.contentDocument;
    frameDocument.open(); // Or Firefox replaces the document later.
    frameDocument.close();

    const scope = this.#frame.contentWindow;
    scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    scope.importScripts = async (...urls) => {
      for (const script of urls) await this.#load(script);
    };
    this.#started = this.#load(url);
  }

  async postMessage(data) {
    await this.#started;
    this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() {
    this.#frame.remove();
  }

  #load(url) {
    return new Promise((resolve, reject) => {
      const script = this.#frame.contentDocument.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${url} cannot be loaded`));
      this.#frame.contentDocument.body.append(script);
    });
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
