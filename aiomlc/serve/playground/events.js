/** Server-sent events of a response. */

/** Yields `{event, data}` for each event of a stream of bytes; comments are skipped. */
export async function* readEvents(bytes) {
  let pending = "";
  const text = bytes.pipeThrough(new TextDecoderStream());
  for await (const piece of chunks(text)) {
    pending += piece;
    // A carriage return at the end may be the first half of a line break.
    const complete = pending.endsWith("\r") ? pending.slice(0, -1) : pending;
    const blocks = complete.split(/\r\n\r\n|\n\n|\r\r/);
    pending = blocks.pop() + pending.slice(complete.length);
    yield* blocks.map(parseEvent).filter((event) => event.data !== "");
  }
}

/** Yields the chunks of a stream; Safari's streams cannot be iterated. */
async function* chunks(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Leaving early closes the connection, which cancels the request.
    await reader.cancel().catch(() => {});
  }
}

function parseEvent(block) {
  let event = "message";
  const data = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
    if (field === "event") event = value ?? "";
    if (field === "data") data.push(value ?? "");
  }
  return { event, data: data.join("\n") };
}
