// Sends single keystrokes from the panel around it to Python. The panel, not the pad, listens: keys work after a click
// on any of its buttons. Text fields keep their keys; the notebook's own shortcuts are told to stay out (Lumino's opt-out).
const TEXT = "input, textarea, select, [contenteditable=true]";

function render({ model, el }) {
  const say = () => { el.textContent = model.get("hint"); };
  el.classList.add("wb-keypad");
  say();
  model.on("change:hint", say);

  let host = null;
  const onKey = (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    const inText = event.target.closest(TEXT);
    if (event.key === "Escape" && inText) { host.focus(); event.preventDefault(); return; }
    if (inText || !model.get("accepts").includes(event.key)) return;
    if (event.key === "Enter" && event.target.closest("button, summary, a")) return;  // it presses what has the focus
    event.preventDefault();
    if (!event.repeat) model.send({ key: event.key });
  };
  const onClick = (event) => {
    // A mouse click on a button must not leave Enter pressing that button again.
    if (event.detail > 0 && event.target.closest("button")) host.focus({ preventScroll: true });
  };

  const attach = () => {
    host = el.closest(".wb-keys");
    if (!host) { waiting = requestAnimationFrame(attach); return; }
    host.dataset.lmSuppressShortcuts = "true";
    host.tabIndex = 0;
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", model.get("hint"));
    host.addEventListener("keydown", onKey, true);  // ipywidgets' text areas stop the event on its way up
    host.addEventListener("click", onClick);
  };
  let waiting = requestAnimationFrame(attach);
  return () => {
    cancelAnimationFrame(waiting);
    if (host) { host.removeEventListener("keydown", onKey, true); host.removeEventListener("click", onClick); }
  };
}
export default { render };
