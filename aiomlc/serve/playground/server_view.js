/** The figures of the server, from its metrics once a second. */

import { byId, create, setText } from "./dom.js";
import { formatCount, formatRate, formatSeconds } from "./messages.js";
import { parseMetrics } from "./prometheus.js";

const INTERVAL = 1000; // Milliseconds.
const RETRY_INTERVAL = 5000; // After a failure.
const HISTORY = 60; // Rates in the curve.
const ROWS = {
  running: "Running",
  waiting: "Waiting in the queue",
  firstToken: "Time to first token, mean",
  cached: "Prompt tokens from the cache",
  pages: "KV pages in use",
};

export class ServerView {
  #api;
  #rows = {};
  #bar = create("div", { className: "bar" });
  #rates = [];
  #last = null; // The previous metrics, and when they were read.

  constructor(api) {
    this.#api = api;
    for (const [name, label] of Object.entries(ROWS)) {
      this.#rows[name] = create("dd", { textContent: "–", id: `figure-${name}` });
      byId("figures").append(create("dt", { textContent: label }), this.#rows[name]);
    }
    byId("figures").after(create("div", { className: "track", id: "pages-bar" }, this.#bar));
  }

  /** Reads the metrics for as long as the page is open, and while it is visible. */
  async run() {
    for (;;) {
      const isRead = document.hidden || (await this.#read());
      await new Promise((resolve) => setTimeout(resolve, isRead ? INTERVAL : RETRY_INTERVAL));
    }
  }

  async #read() {
    try {
      this.#show(parseMetrics(await this.#api.metrics()));
      setText(byId("server-state"), "");
      return true;
    } catch (error) {
      this.#last = null;
      setText(byId("server-state"), error.message);
      return false;
    }
  }

  #show(metrics) {
    const get = (name) => metrics.get(`aiomlc_${name}`) ?? null;
    this.#showRate(get("completion_tokens_total"));
    const pages = get("kv_cache_pages");
    const used = pages === null ? null : pages - get("kv_cache_pages_free");
    const prompts = get("prompt_tokens_total");
    this.#set("running", get("sequences_running"));
    this.#set("waiting", get("sequences_waiting"));
    this.#set("cached", prompts ? `${Math.round((100 * get("prefix_cache_tokens_total")) / prompts)} %` : null);
    this.#set("pages", pages ? `${formatCount(used)} of ${formatCount(pages)}` : null);
    this.#set("firstToken", meanTime(get("time_to_first_token_seconds_sum"), get("time_to_first_token_seconds_count")));
    this.#bar.style.width = pages ? `${(100 * used) / pages}%` : "0";
  }

  #set(name, value) {
    setText(this.#rows[name], value === null ? "–" : String(value));
  }

  #showRate(tokens) {
    const now = performance.now();
    // A counter that is smaller than before belongs to a server that was started anew.
    const isNext = this.#last !== null && tokens !== null && tokens >= this.#last.tokens;
    if (isNext) this.#addRate((1000 * (tokens - this.#last.tokens)) / (now - this.#last.time));
    this.#last = tokens === null ? null : { tokens, time: now };
  }

  #addRate(rate) {
    this.#rates = [...this.#rates, rate].slice(-HISTORY);
    setText(byId("rate"), rate ? formatRate(rate) : "0");
    const highest = Math.max(1, ...this.#rates);
    const left = HISTORY - this.#rates.length;
    const points = this.#rates.map((each, index) => `${2 * (left + index + 1)},${30 - (28 * each) / highest}`);
    byId("rate-history").firstElementChild.setAttribute("points", points.join(" "));
  }
}

function meanTime(sum, count) {
  return count ? formatSeconds(sum / count) : null;
}
