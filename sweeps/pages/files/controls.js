// Elements of a page, and what a reader sets by hand or by keyboard.

// An element with properties and children; a text is a text, never markup.
function make(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const region = (id) => document.getElementById(id);
const fill = (id, ...parts) => region(id).replaceChildren(...parts);

// The answer, and what is said in passing.
const said = (...words) => make("p", { className: "answer" }, ...words);

function note(...words) {
  return make("p", { className: "note" }, ...words);
}

// What opens by a click; `open` keeps whether it is, where the page is drawn anew.
function details(open, key, text, ...parts) {
  const made = make("details", { open: Boolean(open[key]) }, make("summary", {}, text), ...parts);
  made.ontoggle = () => {
    open[key] = made.open;
  };
  return made;
}

let COUNT = 0;

// A row of buttons of which one is chosen: options are [[value, text], ..].
function buttons(label, options, value, changed) {
  const name = `choice${(COUNT += 1)}`;
  const each = options.map(([option, text]) => {
    const input = make("input", { type: "radio", name, checked: option === value });
    input.onchange = () => changed(option);
    return make("label", {}, input, make("span", {}, text));
  });
  const group = make("fieldset", { className: "buttons" }, make("legend", {}, label), ...each);
  group.put = (now) => options.forEach(([option], n) => {
    each[n].firstChild.checked = option === now;
  });
  return group;
}

// A slider over texts, by their places.
function slider(label, texts, index, changed) {
  const shown = make("output", {}, texts[index] ?? "");
  const input = make("input", {
    type: "range", min: 0, max: texts.length - 1, step: 1, value: index, "aria-label": label,
  });
  const tell = (now) => {
    shown.textContent = texts[now] ?? "";
    input.setAttribute("aria-valuetext", texts[now] ?? "");
  };
  tell(index);
  input.oninput = () => {
    tell(Number(input.value));
    changed(Number(input.value));
  };
  const whole = make("label", { className: "slider" }, make("span", {}, label, shown), input);
  whole.put = (now) => {
    input.value = now;
    tell(now);
  };
  return whole;
}

// A list of which one is chosen: options are [[value, text], ..].
function choice(label, options, value, changed) {
  const list = make("select", { "aria-label": label }, ...options.map(([option, text]) => {
    return make("option", { value: option, selected: option === value }, text);
  }));
  list.onchange = () => changed(list.value);
  const whole = make("label", { className: "choice" }, make("span", {}, label), list);
  whole.put = (now) => {
    list.value = now;
  };
  return whole;
}

// A number that the reader types, with a unit; `changed` gets NaN where it is none.
function field(label, units, text, changed) {
  const input = make("input", { type: "text", value: text, inputMode: "text", "aria-label": label });
  input.onchange = () => {
    const value = input.value.trim() ? readNumber(input.value, units) : NaN;
    input.setAttribute("aria-invalid", input.value.trim() !== "" && Number.isNaN(value));
    changed(value, input.value);
  };
  return make("label", { className: "field" }, make("span", {}, label), input);
}

function button(text, pressed) {
  const made = make("button", { type: "button" }, text);
  made.onclick = pressed;
  return made;
}

// A table: heads, rows of texts (or elements); the first column names the row.
function table(heads, rows) {
  const line = (cells) => make("tr", {}, ...cells.map((cell, column) => make(column ? "td" : "th", {}, cell)));
  const top = make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)));
  const body = make("tbody", {}, ...rows.map(line));
  const whole = make("table", {}, make("thead", {}, top), body);
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Table" }, whole);
}
