/** Messages of a conversation: plain objects, and the functions that change them. */

/** Returns a message of the user or of a tool, or an answer that is still empty. */
export function newMessage(role, content = "", fields = {}) {
  return {
    role,
    content,
    images: [], // Before the content, as `data:` URLs.
    reasoning: "",
    reasoningSeconds: null,
    toolCalls: [],
    tokens: [], // Log-probabilities, if they were requested.
    state: "done", // "streaming", "done", "stopped" or "failed"
    error: null, // In words.
    isTooLong: false, // Whether the error is that the context is full.
    isForgotten: false, // Whether the model does not get to see it any more.
    finishReason: null,
    usage: null,
    firstToken: null, // Seconds from the request to the first delta.
    seconds: null, // From the request to the last delta.
    ...fields,
  };
}

/** Adds a chunk of a stream to the answer; `seconds` is the time since the request. */
export function applyChunk(message, chunk, seconds) {
  if (chunk.usage) message.usage = chunk.usage;
  const choice = chunk.choices?.[0];
  if (!choice) return;

  const delta = choice.delta ?? {};
  message.content += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? "";
  for (const call of delta.tool_calls ?? []) applyCall(message.toolCalls, call);
  message.tokens.push(...(choice.logprobs?.content ?? []));
  message.finishReason = choice.finish_reason ?? message.finishReason;
  if (delta.content || delta.reasoning_content || delta.tool_calls || choice.logprobs) {
    message.firstToken ??= seconds;
    message.seconds = seconds;
  }
  if (delta.reasoning_content) message.reasoningSeconds = seconds - message.firstToken;
}

function applyCall(calls, delta) {
  const call = (calls[delta.index] ??= { id: "", name: "", arguments: "" });
  call.id = delta.id ?? call.id;
  call.name = delta.function?.name ?? call.name;
  call.arguments += delta.function?.arguments ?? "";
}

/** Returns the messages as the API takes them, the system prompt first. */
export function toRequest(messages, systemPrompt) {
  const system = systemPrompt ? [{ role: "system", content: systemPrompt }] : [];
  return [...system, ...messages.map(toWire)];
}

function toWire(message) {
  const { role, content, images } = message;
  if (role === "tool") return { role, content, tool_call_id: message.toolCallId };
  if (role !== "assistant") return { role, content: images.length > 0 ? toParts(images, content) : content };

  const wire = { role, content: content || null };
  if (message.reasoning) wire.reasoning_content = message.reasoning;
  if (message.toolCalls.length === 0) return { ...wire, content };

  wire.tool_calls = message.toolCalls.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  return wire;
}

function toParts(images, text) {
  return [...images.map((url) => ({ type: "image_url", image_url: { url } })), { type: "text", text }];
}

/** Describes an answer: its length, speed and share of cached tokens. */
export function figures(message) {
  const parts = [];
  const { usage, firstToken, seconds } = message;
  if (usage) parts.push(count(usage.completion_tokens, "token"));
  const rate = decodeRate(message);
  if (rate) parts.push(`${formatRate(rate)} tokens/s`);
  if (firstToken !== null) parts.push(`first after ${formatSeconds(firstToken)}`);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${formatCount(cached)} of ${count(usage.prompt_tokens, "prompt token")} cached`);
  } else if (seconds !== null) {
    parts.push(`${formatSeconds(seconds)} in all`);
  }
  return parts.join(" · ");
}

/** Returns tokens per second after the first token, as the server measured it if it did. */
function decodeRate({ usage, firstToken, seconds }) {
  if (usage?.extra?.decode_tokens_per_s) return usage.extra.decode_tokens_per_s;
  const tokens = (usage?.completion_tokens ?? 0) - 1;
  return tokens > 0 && seconds > firstToken ? tokens / (seconds - firstToken) : null;
}

const count = (number, noun) => `${formatCount(number)} ${noun}${number === 1 ? "" : "s"}`;

export function formatSeconds(seconds) {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

export function formatRate(rate) {
  return rate < 10 ? rate.toFixed(1) : formatCount(Math.round(rate));
}

export function formatCount(number) {
  return number.toLocaleString("en");
}
