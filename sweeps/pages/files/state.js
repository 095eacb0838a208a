// What a page shows, kept in the address's fragment: a link to a page is a link to a view.

// Fields by name: { initial (or a function of the state), read(text) -> value or undefined,
// write(value) -> text }.
// Names that end in "." are tables: "at." holds one entry for each "at.NAME=..".
function makeState(fields, changed) {
  const state = {};
  const initial = ({ initial: usual, table }) => (typeof usual === "function" ? usual(state) : table ? { ...usual } : usual);
  const read = () => {
    const given = [...new URLSearchParams(fragment())].map(([key, text]) => [...split(key), text]);
    // In their order: how a field begins may follow from those before it.
    for (const [name, field] of Object.entries(fields)) {
      state[name] = initial(field);
      for (const [owner, entry, text] of given) {
        if (owner !== name || Boolean(field.table) !== (entry !== null)) continue;
        const value = field.read(text, entry, state);
        if (value === undefined) continue;
        if (field.table) state[name][entry] = value;
        else state[name] = value;
      }
    }
  };
  const write = () => {
    const given = new URLSearchParams();
    for (const [name, field] of Object.entries(fields)) {
      const now = field.table ? state[name] : { "": state[name] };
      const usual = field.table ? field.initial : { "": initial(field) };
      for (const [entry, value] of Object.entries(now)) {
        const text = value === undefined ? "" : field.write(value, entry);
        const known = entry in usual && usual[entry] !== undefined;
        if (text !== (known ? field.write(usual[entry], entry) : "")) {
          given.append(entry ? `${name}.${entry}` : name, text);
        }
      }
    }
    return given.toString();
  };
  state.fragment = write;
  // Changes some fields, and tells the page: `state.set({ view: "map" })`.
  state.set = (some) => {
    Object.assign(state, some);
    const text = write();
    if (typeof history !== "undefined") {
      history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    }
    changed(state);
  };
  state.load = () => {
    read();
    changed(state);
  };
  if (typeof window !== "undefined") window.addEventListener("hashchange", state.load);
  read();
  return state;
}

function fragment() {
  return typeof location === "undefined" ? "" : location.hash.slice(1);
}

function split(key) {
  const dot = key.indexOf(".");
  return dot < 0 ? [key, null] : [key.slice(0, dot), key.slice(dot + 1)];
}

// Unpacks what the page holds, and hands it to its kind's `start`.
async function boot() {
  if (typeof document === "undefined") return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const packed = document.getElementById("values").textContent;
  setScales(data.scales);
  setColours(data.colours);
  start(data, packed ? await unpacked(packed) : null);
  document.documentElement.dataset.ready = "yes";
}

async function unpacked(text) {
  const response = await fetch(`data:application/octet-stream;base64,${text}`);
  const plain = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).arrayBuffer();
}

// Gives the reader a file.
function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Rows as CSV; a cell that would be a formula in a spreadsheet stays text.
function csvOf(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
