// What a method is and what a mark of a chart stands for, in a card beside the pointer, the finger or the focus.
const card = document.createElement("div");
card.id = "tip";
card.setAttribute("role", "status");
card.hidden = true;
document.body.append(card);
for (const term of document.querySelectorAll("[title]")) {
  term.dataset.says = term.title; // in the place of the browser's own, which is slow and not for the keyboard
  term.removeAttribute("title");
}

const terms = new Map();
for (const name of document.querySelectorAll("dt")) terms.set(name.textContent, name.nextElementSibling.firstChild.textContent);

function said(target) {
  const told = target.closest?.("[data-says]");
  if (told) return [told, told.dataset.says];
  if (target.closest?.(".role-axis-label") && terms.has(target.textContent)) return [target, terms.get(target.textContent)];
  const mark = target.closest?.(".chart [role='graphics-symbol'][aria-label]");
  return mark && mark.getAttribute("aria-roledescription") !== "axis" ? [mark, mark.getAttribute("aria-label").replaceAll("; ", "\n")] : null;
}

let focused = null; // what the card speaks of where the keyboard asked: getting there may scroll the page

function show(event) {
  const found = said(event.target);
  card.hidden = !found;
  focused = event.type === "focusin" && found ? event : null;
  if (!found) return;
  card.textContent = found[1];
  const box = found[0].getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - card.offsetWidth / 2), innerWidth - card.offsetWidth - 8);
  const above = box.top - card.offsetHeight - 8;
  card.style.left = `${left}px`;
  card.style.top = `${above > 4 ? above : Math.min(box.bottom + 8, innerHeight - card.offsetHeight - 8)}px`;
}

for (const kind of ["pointerover", "focusin", "pointerdown"]) document.addEventListener(kind, show);
document.addEventListener("focusout", () => (card.hidden = true));
document.addEventListener("scroll", () => (focused && !card.hidden ? show(focused) : (card.hidden = true)), { capture: true, passive: true });
document.addEventListener("keydown", (event) => event.key === "Escape" && (card.hidden = true));

// A button for each series of a figure that switches it off and on.
for (const figure of document.querySelectorAll("figure[data-series]")) {
  const row = document.createElement("div");
  row.className = "switches";
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "Show or hide");
  for (const name of JSON.parse(figure.dataset.series)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(shown));
      for (const mark of figure.querySelectorAll("[role='graphics-symbol'][aria-label]")) {
        if (mark.getAttribute("aria-label").startsWith(`${name}, `)) mark.classList.toggle("off", !shown);
      }
    });
    row.append(button);
  }
  figure.querySelector(".chart").before(row);
}

// On paper everything is unfolded.
const folded = () => document.querySelectorAll("details:not([open])");
addEventListener("beforeprint", () => {
  for (const each of folded()) each.open = each.dataset.printed = true;
});
addEventListener("afterprint", () => {
  for (const each of document.querySelectorAll("details[data-printed]")) {
    each.open = false;
    delete each.dataset.printed;
  }
});
