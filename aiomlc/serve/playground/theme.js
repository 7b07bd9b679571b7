/** Dark and light: the system's choice until the switch is used, which is remembered. */

const KEY = "aiomlc-theme";

export function initTheme(button) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = localStorage.getItem(KEY);
  const apply = () => {
    const isDark = chosen ? chosen === "dark" : system.matches;
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(isDark));
  };
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem(KEY, chosen);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
