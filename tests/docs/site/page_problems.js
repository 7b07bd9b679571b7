// Returns what is wrong with the look of a page on this screen.
() => {
  const problems = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    problems.push(`the page is ${root.scrollWidth} wide, the screen ${root.clientWidth}`);
  }
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one heading");
  for (const image of document.images) {
    if (image.complete && !image.naturalWidth) problems.push(`no image ${image.src}`);
  }
  for (const name of document.querySelectorAll("td code")) {
    const isWord = /^\w{1,30}$/.test(name.textContent);
    if (isWord && name.getClientRects().length > 1) {
      problems.push(`a line ends within ${name.textContent}`);
    }
  }
  return problems;
};
