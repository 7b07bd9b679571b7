/** Prometheus' text format, as far as the playground needs it. */

/** Returns the sums of the samples of each metric over all labels, by name. */
export function parseMetrics(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line);
    if (match) sums.set(match[1], (sums.get(match[1]) ?? 0) + Number(match[2]));
  }
  return sums;
}
