"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;

  // Theme: as the system has it, until the reader chooses. A page from file:// may have no storage.
  const modes = ["auto", "light", "dark"];
  const say = { auto: "Theme: as the system has it", light: "Theme: light", dark: "Theme: dark" };
  const memory = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
                   set: (mode) => { try { localStorage.setItem("theme", mode); } catch { /* the choice lasts for this page */ } } };
  const wear = (mode) => {
    if (mode === "auto") root.removeAttribute("data-theme"); else root.setAttribute("data-theme", mode);
    $("theme").title = say[mode];
    $("theme").dataset.mode = mode;
  };
  wear(modes.includes(memory.get()) ? memory.get() : "auto");
  $("theme").addEventListener("click", () => {
    const next = modes[(modes.indexOf($("theme").dataset.mode) + 1) % modes.length];
    wear(next); memory.set(next);
  });

  // Tips: one box, kept inside the window.
  const tip = document.createElement("div");
  tip.id = "tip"; tip.setAttribute("role", "tooltip"); tip.hidden = true;
  document.body.append(tip);
  let owner = null;
  const place = () => {
    const at = owner.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left), root.clientWidth - box.width - 8);
    const below = at.bottom + 6 + box.height < innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - box.height - 6)}px`;
  };
  const show = (event) => {
    owner = event.target.closest && event.target.closest("[data-tip]");
    tip.hidden = !owner;
    if (owner) { tip.textContent = owner.dataset.tip; place(); }
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  // The page also scrolls to show what the Tab key reaches: that keeps its tip.
  document.addEventListener("scroll", () => {
    if (!tip.hidden && owner.matches(":focus-visible")) place(); else tip.hidden = true;
  }, { passive: true });

  // Tables: a click on a head sorts; empty cells stay last. A head of several names sorts by each of them.
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const key = (row, column, by) => {
    const cell = row.cells[column], given = cell.dataset[by];
    const text = (given !== undefined ? given : cell.textContent).trim();
    if (text === "" || text === "–") return null;
    if (!cell.classList.contains("n")) return text;
    const number = Number(text.replace(/,/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const names = head.querySelectorAll("[data-by]");
      for (const name of names.length ? names : [head]) {
        const button = document.createElement("button");
        button.type = "button"; button.append(...name.childNodes); name.append(button);
        const term = button.querySelector(".term");  // one stop for the Tab key: the button tells the tip
        if (term) { button.dataset.tip = term.dataset.tip; term.removeAttribute("tabindex"); }
        button.addEventListener("click", () => {
          const was = button.dataset.order;
          const down = was ? was === "ascending" : head.classList.contains("n");
          for (const other of heads) {
            other.removeAttribute("aria-sort");
            for (const one of other.querySelectorAll("button")) delete one.dataset.order;
          }
          button.dataset.order = down ? "descending" : "ascending";
          head.setAttribute("aria-sort", button.dataset.order);
          const rows = [...table.tBodies[0].rows].map((row) => [key(row, column, name.dataset.by || "v"), row]);
          rows.sort(([a], [b]) => {
            if (a === null || b === null) return (a === null) - (b === null);
            const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
            return down ? -order : order;
          });
          table.tBodies[0].append(...rows.map(([, row]) => row));
        });
      }
    });
  }

  // Filter: every word must occur somewhere in the row.
  const later = (act, ms) => { let timer; return () => { clearTimeout(timer); timer = setTimeout(act, ms); }; };
  for (const input of document.querySelectorAll("input[data-filters]")) {
    const name = input.dataset.filters, rows = [...$(name).tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const act = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let n = 0;
      rows.forEach((row, at) => { const keep = words.every((word) => texts[at].includes(word)); row.hidden = !keep; n += keep; });
      $(`${name}-count`).textContent = `${n} of ${rows.length}`;
      $(`${name}-none`).hidden = n > 0;
    };
    input.addEventListener("input", later(act, 80));
    act();
  }

  // Transcript: search as it is shown, mark what is found, open what a link points to.
  const entries = [...document.querySelectorAll("#entries > details")];
  if (entries.length) {
    const texts = entries.map((entry) => entry.textContent.toLowerCase());
    const highlight = (needle) => {
      if (!window.CSS || !CSS.highlights) return;
      CSS.highlights.delete("found");
      if (!needle) return;
      const ranges = [];
      for (const entry of entries) {
        if (entry.hidden || ranges.length > 2000) continue;
        const walk = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT);
        for (let node = walk.nextNode(); node && ranges.length <= 2000; node = walk.nextNode()) {
          const text = node.data.toLowerCase();
          for (let at = text.indexOf(needle); at >= 0; at = text.indexOf(needle, at + needle.length)) {
            const range = new Range();
            range.setStart(node, at); range.setEnd(node, Math.min(at + needle.length, node.length)); ranges.push(range);
          }
        }
      }
      CSS.highlights.set("found", new Highlight(...ranges));
    };
    const search = () => {
      const needle = $("search").value.toLowerCase().trim();
      let n = 0;
      entries.forEach((entry, at) => { const keep = texts[at].includes(needle); entry.hidden = !keep; n += keep; });
      $("found").textContent = needle ? `${n} of ${entries.length} entries` : entries.length === 1 ? "1 entry" : `${entries.length} entries`;
      $("nothing").hidden = n > 0;
      highlight(needle.length > 1 ? needle : "");
    };
    $("search").addEventListener("input", later(search, 150));
    $("open-all").addEventListener("click", () => {
      const open = $("open-all").textContent === "Open all";
      for (const entry of entries) entry.open = open;
      $("open-all").textContent = open ? "Close all" : "Open all";
    });
  }
  const arrive = () => {
    const target = location.hash.length > 1 && $(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.closest("details")) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) { fold.hidden = false; fold.open = true; }
    target.scrollIntoView({ block: "start" });
  };
  addEventListener("hashchange", arrive);

  // Figures: drawn one after the other, so that the page can be read meanwhile.
  const draw = async () => {
    for (const place of document.querySelectorAll(".chart[data-spec]")) {
      try {
        const spec = JSON.parse($(place.dataset.spec).textContent);
        const drawn = await vegaEmbed(place, spec, { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true } });
        if (place.dataset.links) drawn.view.addEventListener("click", (_, item) => {
          const datum = item && item.datum, turn = datum && (datum.turn ?? datum.first_turn);
          if (Number.isInteger(turn)) { if (location.hash === `#t${turn}`) arrive(); else location.hash = `t${turn}`; }
        });
        place.dataset.drawn = "yes";
      } catch (error) {
        place.dataset.drawn = "no";
        place.textContent = "This figure could not be drawn.";
        console.error(error);
      }
    }
    root.dataset.ready = "yes";
    arrive();
  };
  draw();
})();
