"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const LARGEST = 1.5, LEAST = 0.55;
  // panes are as tall as their graphs are, up to what the style allows
  const heights = (panes) => {
    for (const pane of panes) pane.style.height = "";
    const wanted = panes.map((pane) => {
      const { width, height } = $("svg", pane).dataset;
      const k = Math.max(LEAST, Math.min(LARGEST, (pane.clientWidth - 24) / width));
      return Math.min(pane.clientHeight, Math.max(110, height * k + 28));
    });
    const most = Math.max(...wanted);
    for (const pane of panes) pane.style.height = `${most}px`;
  };
  for (const link of $$("a[href^='#']")) link.addEventListener("click", () => {
    const folded = $(`${link.getAttribute("href")} > details`);
    if (folded) folded.open = true;
  });
  for (const figure of $$(".compared")) {
    const data = JSON.parse($("script[type='application/json']", figure).textContent);
    const about = $(".about", figure), count = $(".count", figure), search = $("input", figure);
    const rows = $$(".row", figure), views = new Map();
    const panes = $$(".pane", figure);
    const view = (pane) => {
      const tools = pane.parentElement, svg = $("svg", pane), inner = $("g.all", svg), box = { x: 0, y: 0, k: 1 };
      const width = +svg.dataset.width, height = +svg.dataset.height;
      const show = () => inner.setAttribute("transform", `translate(${box.x} ${box.y}) scale(${box.k})`);
      const zoom = (factor, x = svg.clientWidth / 2, y = svg.clientHeight / 2) => {
        const k = Math.min(4, Math.max(0.02, box.k * factor));
        box.x = x - (x - box.x) * k / box.k;
        box.y = y - (y - box.y) * k / box.k;
        box.k = k;
        show();
      };
      const fit = (least = 0) => {
        box.k = Math.max(least, Math.min(LARGEST, (svg.clientWidth - 24) / width, (svg.clientHeight - 24) / height));
        box.x = (svg.clientWidth - width * box.k) / 2;
        box.y = Math.max(12, (svg.clientHeight - height * box.k) / 2);
        show();
      };
      const centre = (row) => {
        box.k = Math.max(box.k, 0.8);
        box.x = svg.clientWidth / 2 - (+row.dataset.x) * box.k;
        box.y = Math.min(44, svg.clientHeight / 2 - (+row.dataset.y) * box.k);
        show();
      };
      let from = null, moved = false;
      const fingers = new Map();
      svg.addEventListener("pointerdown", (event) => {
        fingers.set(event.pointerId, [event.clientX, event.clientY]);
        from = [event.clientX - box.x, event.clientY - box.y];
        moved = false;
      });
      svg.addEventListener("pointermove", (event) => {
        if (!fingers.has(event.pointerId)) return;
        if (fingers.size === 2) {
          const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
          const old = fingers.get(event.pointerId), frame = svg.getBoundingClientRect();
          const apart = (at) => Math.max(8, Math.hypot(at[0] - other[0], at[1] - other[1]));
          zoom(apart([event.clientX, event.clientY]) / apart(old), (event.clientX + other[0]) / 2 - frame.left, (event.clientY + other[1]) / 2 - frame.top);
          fingers.set(event.pointerId, [event.clientX, event.clientY]);
          moved = true;
          from = null;
          return;
        }
        if (!from) return;
        const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
        if (Math.hypot(x - box.x, y - box.y) > 3 && !moved) { moved = true; svg.setPointerCapture(event.pointerId); }
        if (moved) { box.x = x; box.y = y; show(); }
      });
      for (const name of ["pointerup", "pointercancel", "pointerleave"])
        svg.addEventListener(name, (event) => { fingers.delete(event.pointerId); from = null; });
      svg.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== svg) return;
        event.preventDefault();
        const frame = svg.getBoundingClientRect();
        zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - frame.left, event.clientY - frame.top);
      }, { passive: false });
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
        if (step) { box.x += step[0]; box.y += step[1]; show(); event.preventDefault(); }
        if (event.key === "+" || event.key === "=") zoom(1.25);
        if (event.key === "-") zoom(0.8);
      });
      $("[data-do=in]", tools).addEventListener("click", () => zoom(1.35));
      $("[data-do=out]", tools).addEventListener("click", () => zoom(1 / 1.35));
      $("[data-do=fit]", tools).addEventListener("click", () => fit());
      const mine = rows.filter((row) => pane.contains(row));
      const changed = mine.filter((row) => row.classList.contains("changed"));
      let at = -1;
      $("[data-do=next]", tools)?.addEventListener("click", () => {
        at = (at + 1) % changed.length;
        choose(changed[at]);
      });
      const begin = () => {
        fit(LEAST);
        if (height * box.k > svg.clientHeight && changed.length) centre(changed[0]);
      };
      for (const row of mine) row.addEventListener("click", () => { if (!moved) choose(row, false); });
      return { centre, begin };
    };
    const line = (name, value) => {
      if (!value || !value.length) return;
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name;
      dd.textContent = Array.isArray(value) ? value.join(", ") : value;
      about.lastChild.append(dt, dd);
    };
    const nodesOf = (row) => row.dataset.nodes.split(" ").map((n) => data[row.dataset.side][+n]);
    const choose = (row, move = true) => {
      for (const one of rows) one.classList.remove("chosen", "other");
      row.classList.add("chosen");
      const nodes = nodesOf(row), names = new Set(nodes.map((one) => one.name)), rules = new Set(nodes.flatMap((one) => one.rules));
      const twins = rows.filter((one) => one.dataset.side !== row.dataset.side && nodesOf(one).some(
        (node) => names.has(node.name) || node.rules.some((rule) => rules.has(rule) && [...names].some((name) => node.name.startsWith(name) || name.startsWith(node.name)))));
      for (const twin of twins) twin.classList.add("other");
      if (move) views.get(row.closest(".pane")).centre(row);
      if (twins.length) views.get(twins[0].closest(".pane")).centre(twins[0]);
      about.replaceChildren(document.createElement("dl"));
      for (const node of nodes.slice(0, 40)) {
        line("node", `${node.name}  (${node.operator})`);
        line(row.dataset.side === "before" ? "replaced by" : "made by", node.rules);
        if (node.milliseconds !== null) line("time", `${node.milliseconds.toPrecision(3)} ms`);
        if (nodes.length === 1) {
          line("reads", node.inputs);
          line("gives", node.outputs);
          for (const [name, value] of Object.entries(node.attributes)) line(name, value);
        }
      }
      if (nodes.length > 40) line("", `and ${nodes.length - 40} more`);
    };
    const lay = () => {
      heights(panes);
      for (const one of views.values()) one.begin();
    };
    for (const pane of panes) views.set(pane, view(pane));
    lay();
    // nothing has a width in what is folded
    figure.closest("details")?.addEventListener("toggle", lay);
    let wide = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth !== wide) lay();
      wide = innerWidth;
    });
    let hits = [], turn = -1;
    const look = () => {
      const wanted = search.value.trim().toLowerCase();
      turn = -1;
      hits = wanted ? rows.filter((row) => nodesOf(row).some((one) =>
        one.name.toLowerCase().includes(wanted) || one.operator.toLowerCase().includes(wanted) || one.outputs.some((name) => name.toLowerCase().includes(wanted)))) : [];
      const set = new Set(hits);
      for (const row of rows) row.classList.toggle("hit", set.has(row));
      count.textContent = wanted ? `${hits.length} found` + (hits.length ? ", Enter shows the next" : "") : "";
    };
    search.addEventListener("input", look);
    search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !hits.length) return;
      turn = (turn + 1) % hits.length;
      choose(hits[turn]);
      event.preventDefault();
    });
    for (const button of $$("[data-rule]", figure)) button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      for (const other of $$("[data-rule]", figure)) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(on));
      const found = rows.filter((row) => on && nodesOf(row).some((one) => one.rules.includes(button.dataset.rule)));
      const set = new Set(found);
      for (const row of rows) row.classList.toggle("hit", set.has(row));
      for (const pane of views.keys()) {
        const first = found.find((row) => pane.contains(row));
        if (first) views.get(pane).centre(first);
      }
      count.textContent = on ? `${found.length} ${found.length === 1 ? "node" : "nodes"} in both` : "";
    });
  }
})();
