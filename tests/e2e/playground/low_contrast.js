// Returns the visible texts whose contrast with their background is below 4.5, with the ratio.
() => {
  const parse = (color) => {
    const numbers = color.match(/[\d.]+/g).map(Number);
    return { rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1 };
  };
  const background = (element) => {
    for (let node = element; node; node = node.parentElement) {
      const { rgb, alpha } = parse(getComputedStyle(node).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const luminance = (rgb) => {
    const linear = rgb.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (first, second) => {
    const [high, low] = [luminance(first), luminance(second)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const hasText = (element) =>
    element.matches("input, textarea, select") ||
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  return [...document.body.querySelectorAll("*")]
    .filter((element) => element.checkVisibility({ visibilityProperty: true }) && hasText(element))
    .map((element) => [element, contrast(parse(getComputedStyle(element).color).rgb, background(element))])
    .filter(([, ratio]) => ratio < 4.5)
    .map(([element, ratio]) => `${ratio.toFixed(2)} ${element.outerHTML.slice(0, 100)}`);
}
