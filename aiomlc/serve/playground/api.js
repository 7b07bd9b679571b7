/** The client of the server. Its addresses are relative, so that a prefix in them is kept. */

import { readEvents } from "./events.js";

/** An error of the server, or of the way to it, with a message for people. */
export class ApiError extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    this.name = "ApiError";
    this.status = status; // 0 if there was no response.
    this.code = code; // OpenAI's, if there is one.
  }
}

const EXPLANATIONS = {
  401: "The API key is missing or wrong. Enter it at the end of the settings.",
  403: "This API key may not do that.",
  404: "The server does not have what was asked for.",
  408: "The request took longer than its time limit.",
  413: "The request is too large.",
  429: "The server has too many requests at the moment.",
  499: "The request was cancelled.",
  503: "The server takes no requests at the moment.",
};

export class Api {
  #getKey;

  constructor(getKey) {
    this.#getKey = getKey;
  }

  /** Returns the models, as OpenAI's objects with what the server tells of them. */
  async models() {
    return (await this.#json("v1/models")).data;
  }

  /** Returns the version of the server. */
  async version() {
    return (await this.#json("version")).version;
  }

  /** Returns the metrics in Prometheus' text format. */
  async metrics() {
    return (await this.#fetch("metrics")).text();
  }

  /** Yields the chunks of a chat completion; aborting the signal cancels the request. */
  async *chat(request, signal) {
    const response = await this.#fetch("v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
      signal,
    });
    for await (const { event, data } of readEvents(response.body)) {
      if (data === "[DONE]") return;
      const chunk = parseChunk(data);
      if (event === "error" || chunk.error) throw new ApiError(messageOf(chunk) ?? data);
      yield chunk;
    }
    throw new ApiError("The connection ended before the answer did.");
  }

  async #json(path) {
    return (await this.#fetch(path)).json();
  }

  async #fetch(path, { headers = {}, ...options } = {}) {
    const key = this.#getKey();
    const authorization = key ? { Authorization: `Bearer ${key}` } : {};
    let response;
    try {
      response = await fetch(path, { headers: { ...headers, ...authorization }, ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The server cannot be reached. Is it still running?");
    }
    if (!response.ok) throw await errorOf(response);
    return response;
  }
}

function parseChunk(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError(`The server sent an event that is not JSON: ${data.slice(0, 200)}`);
  }
}

function messageOf(body) {
  const error = body?.error ?? body;
  return typeof error === "string" ? error : error?.message;
}

async function errorOf(response) {
  const { status } = response;
  const body = await response.json().catch(() => null);
  const explanation = EXPLANATIONS[status] ?? (status >= 500 ? "The server failed." : "");
  const wait = Number(response.headers.get("Retry-After"));
  const parts = [
    explanation,
    wait > 0 ? `Try again in ${wait} s.` : "",
    messageOf(body) ?? (explanation ? "" : `The server answered with status ${status}.`),
  ];
  return new ApiError(parts.filter(Boolean).join(" "), status, body?.error?.code);
}
