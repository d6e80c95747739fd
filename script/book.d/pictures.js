// Draws the diagrams of a page. On GitHub, GitHub draws them from the same text.
(() => {
  const diagrams = document.querySelectorAll("code.language-mermaid");
  if (diagrams.length === 0) return;
  for (const code of diagrams) {
    const picture = document.createElement("pre");
    picture.className = "mermaid";
    picture.textContent = code.textContent;
    code.parentElement.replaceWith(picture);
  }
  const dark = ["coal", "navy", "ayu"].some((theme) => document.documentElement.classList.contains(theme));
  const library = document.createElement("script");
  library.src = `${path_to_root}mermaid.min.js`;
  library.onload = () => {
    mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
    mermaid.run();
  };
  document.head.append(library);
})();
