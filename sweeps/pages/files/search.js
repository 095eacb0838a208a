"use strict";

const SHOWN = 12;

// Return how well an entry answers words, lower is better; none where a word is missing.
function rank([, name, meaning], words) {
  const title = name.toLowerCase(), whole = `${title} ${meaning.toLowerCase()}`;
  if (!words.every((word) => whole.includes(word))) return null;
  const asked = words.join(" "), named = title.replace(/[_-]+/g, " ");
  if (title === asked || named === asked) return 0;
  if (title.startsWith(asked) || named.startsWith(asked)) return 1;
  return words.every((word) => title.includes(word)) ? 2 : 3;
}

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const ranked = [];
  for (const entry of INDEX) {
    const score = rank(entry, words);
    if (score !== null) ranked.push([score, entry[1].length, entry]);
  }
  ranked.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return ranked.map(([, , entry]) => entry);
}

// A field and its list of links, as the pattern of a combobox asks.
function build(nav) {
  const box = document.createElement("div");
  box.className = "search";
  box.innerHTML = `<label>Search <input type="search" role="combobox" aria-expanded="false"
    aria-controls="hits" aria-autocomplete="list" autocomplete="off"
    placeholder="option, quantity, machine .."></label>
    <ul id="hits" role="listbox" aria-label="Found" hidden></ul><p class="quiet" role="status"></p>`;
  nav.append(box);
  const [field, list, status] = ["input", "ul", "p"].map((tag) => box.querySelector(tag));
  let chosen = -1;

  function choose(next) {
    const hits = [...list.children];
    if (!hits.length) return;
    chosen = (next + hits.length) % hits.length;
    hits.forEach((hit, index) => hit.setAttribute("aria-selected", String(index === chosen)));
    field.setAttribute("aria-activedescendant", hits[chosen].id);
    hits[chosen].scrollIntoView({ block: "nearest" });
  }

  function show() {
    const hits = search(field.value);
    chosen = -1;
    field.removeAttribute("aria-activedescendant");
    list.replaceChildren(...hits.slice(0, SHOWN).map(([kind, name, meaning, link], index) => {
      const hit = document.createElement("li"), anchor = document.createElement("a");
      hit.id = `hit-${index}`;
      hit.setAttribute("role", "option");
      hit.setAttribute("aria-selected", "false");
      anchor.href = link;
      anchor.tabIndex = -1;
      anchor.textContent = name;
      hit.append(anchor, ` ${kind}${meaning ? `: ${meaning}` : ""}`);
      return hit;
    }));
    list.hidden = !hits.length;
    field.setAttribute("aria-expanded", String(hits.length > 0));
    const typed = field.value.trim();
    status.textContent = !typed ? "" : !hits.length ? `nothing has '${typed}'`
      : hits.length > SHOWN ? `${SHOWN} of ${hits.length}` : "";
  }

  field.addEventListener("input", show);
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen < 0 ? -1 : chosen - 1);
    else if (event.key === "Enter") list.children[Math.max(chosen, 0)]?.querySelector("a").click();
    else if (event.key === "Escape") { field.value = ""; show(); }
    else return;
    event.preventDefault();
  });
  // The slash goes to the field, as elsewhere.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, textarea, select")) return;
    event.preventDefault();
    field.focus();
  });
}

build(document.querySelector("nav"));
