"use strict";
// The pages are whole without this file. It renews them, counts down, shows times in the viewer's zone, and has the command palette.
(() => {
  const root = document.documentElement;
  const base = root.dataset.base; // which begins all paths; mostly ""
  const theme = localStorage.getItem("theme");
  if (theme) root.dataset.theme = theme;

  const $ = (id) => document.getElementById(id);
  let skew = 0; // of the browser's clock to that of Redis, in milliseconds; each page that is fetched has the time of Redis
  let renewed = Date.now(); // when the page was last known to be right
  let failures = 0;
  let leaving = false;
  let tag = ""; // ETag of the newest page

  // Times

  const span = (ms) => {
    const s = Math.max(0, Math.floor(ms / 1000));
    if (s < 60) return s + "s";
    if (s < 3600) return Math.floor(s / 60) + "m";
    if (s < 48 * 3600) return Math.floor(s / 3600) + "h";
    return Math.floor(s / 86400) + "d";
  };
  const pad = (n) => String(n).padStart(2, "0");
  const full = (d) => `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "your zone";
  const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  function count() {
    const now = Date.now() - skew;
    for (const node of document.querySelectorAll("main time:not([data-full], [data-as-is])")) {
      const at = Date.parse(node.dateTime);
      if ("lasting" in node.dataset) set(node, span(now - at));
      else set(node, at > now ? "in " + span(at - now) : span(now - at) + " ago");
    }
  }

  function localize() {
    for (const node of document.querySelectorAll("main time")) {
      const at = new Date(node.dateTime);
      if ("full" in node.dataset) set(node, full(at));
      else node.title = `${full(at)} ${zone}`;
    }
    for (const node of document.querySelectorAll("main text[data-time]")) {
      const at = new Date(Number(node.dataset.time));
      set(node, (node.dataset.form === "day" ? `${pad(at.getMonth() + 1)}-${pad(at.getDate())} ` : "") + `${pad(at.getHours())}:${pad(at.getMinutes())}`);
    }
    for (const node of document.querySelectorAll("a[data-own-zone]")) {
      node.hidden = false;
      node.href = node.dataset.ownZone + encodeURIComponent(zone);
      set(node, "in " + zone);
    }
    set($("zone"), "Times in " + zone);
    count();
  }

  // Renewal: the same page is fetched, and its main part takes the place of the old one, unless the viewer is busy with that: then it waits.

  const selectionHolds = 10000; // how long a selection stays that does not change, in milliseconds
  let selected = 0; // when the selection last changed; 0 while there is none
  let pressed = false; // a button is down: a click needs its element until it is up
  let waiting = null; // the page that takes the place of this one once the viewer is done

  const busy = () => {
    const at = document.activeElement;
    const typing = at && at.closest("main") && at.matches("input, select, textarea") && !at.closest("[data-keep]");
    return typing || pressed || $("palette").open || (selected > 0 && Date.now() - selected < selectionHolds);
  };

  const dirty = () => document.querySelector("[data-dirty]"); // a field has text, which a reload would drop

  // reload loads the page once: again and again would never let a slow provider answer.
  function reload() {
    if (!leaving) location.reload();
    leaving = true;
  }

  // show has a page take the place of this one, now or later.
  function show(page) {
    waiting = page;
    if (busy()) {
      state("Paused while you select or type", "paused");
      return;
    }
    const user = page.documentElement.dataset.user; // undefined in the pages of older replicas
    if (user !== undefined && user !== root.dataset.user) { // another user has logged in, and the header and the forms are not theirs
      if (dirty()) state("Another user has logged in: reload this page", "stale");
      else reload();
      return;
    }
    waiting = null;
    swap(document.adoptNode(page.getElementById("main")));
    document.title = page.title;
    localize();
    state("Live", "live");
  }

  // resume shows the page that waits. Events come before the state of the page that they lead to.
  const resume = () => setTimeout(() => { if (waiting && !busy()) show(waiting); }, 0);

  function state(text, name) {
    set($("live"), text);
    $("live").dataset.state = name;
    document.body.classList.toggle("stale", name === "stale");
  }

  // again returns a function that finds an element in the page that takes the place of an old one.
  function again(old, node) {
    if (!node) return () => null;
    if (node.id) return (next) => next.querySelector("#" + CSS.escape(node.id));
    const href = node.getAttribute("href");
    const links = (main) => [...main.querySelectorAll("a[href]")].filter((a) => a.getAttribute("href") === href);
    const at = links(old).indexOf(node);
    return (next) => links(next)[at];
  }

  function swap(next) {
    const old = $("main");
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const find = again(old, focus);
    const scrolls = new Map();
    for (const pre of old.querySelectorAll("[data-follow]")) scrolls.set(pre.id, pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4 ? -1 : pre.scrollTop);
    for (const kept of next.querySelectorAll("[data-keep]")) {
      const before = $(kept.id);
      if (before && (before.contains(focus) || before.dataset.dirty || before.isEqualNode(kept))) kept.replaceWith(before);
    }
    for (const open of old.querySelectorAll("details[open][id]")) {
      const details = next.querySelector("#" + CSS.escape(open.id));
      if (details) details.open = true;
    }
    for (const typed of old.querySelectorAll("[data-dirty][id]")) { // those of kept forms are not in the old page any more
      const field = next.querySelector("#" + CSS.escape(typed.id));
      if (!field || !("value" in field) || field === typed) continue;
      field.value = typed.value;
      field.dataset.dirty = "yes";
    }
    const said = old.querySelector(".said");
    if (said && !next.querySelector(".said")) next.prepend(said);
    old.replaceWith(next);
    for (const [id, top] of scrolls) if ($(id)) $(id).scrollTop = top < 0 ? $(id).scrollHeight : top;
    const target = focus && (document.contains(focus) ? focus : find(next));
    if (target) target.focus({ preventScroll: true });
  }

  // showAway puts the notice that Redis does not answer above the last facts, which may still help.
  function showAway(notice) {
    if (!notice || busy()) return;
    for (const old of document.querySelectorAll("main > .away")) old.remove();
    $("main").prepend(document.adoptNode(notice));
    localize();
  }

  async function renew() {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), 10000);
    try {
      const answer = await fetch(location.href, { signal: controller.signal, headers: { Accept: "text/html", ...(tag && { "If-None-Match": tag }) } });
      if (answer.redirected && new URL(answer.url).pathname === base + "/login" && !busy() && !dirty()) { // the session has ended
        reload();
      }
      if (answer.status === 304) {
        failures = 0;
        renewed = Date.now();
        if (waiting) show(waiting);
        else state("Live", "live");
        return;
      }
      if (answer.status === 503) showAway(new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".away"));
      if (!answer.ok || answer.redirected) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = page.getElementById("main");
      if (!main) throw new Error("no page");
      failures = 0;
      renewed = Date.now();
      skew = renewed - Number(main.dataset.now);
      tag = answer.headers.get("ETag") || "";
      show(page);
    } catch {
      failures++;
      waiting = null;
      tag = "";
      state(`Not live since ${full(new Date(renewed))}`, "stale");
    } finally {
      clearTimeout(timer);
    }
  }

  function plan() {
    const every = Number($("main").dataset.every);
    if (!every) return;
    setTimeout(async () => {
      if (document.visibilityState === "visible") await renew();
      plan();
    }, Math.min(every * 2 ** failures, 30000));
  }

  // The command palette

  let targets = [];
  let shown = [];
  let chosen = 0;

  function choose(n) {
    chosen = Math.max(0, Math.min(n, shown.length - 1));
    [...$("palette-list").children].forEach((item, i) => {
      item.setAttribute("aria-selected", String(i === chosen));
      if (i === chosen) item.scrollIntoView({ block: "nearest" });
    });
    $("palette-input").setAttribute("aria-activedescendant", shown.length ? "target-" + chosen : "");
  }

  const verbs = { trigger: "Run", cancel: "Stop", pause: "Pause", resume: "Resume" };

  // withActs adds the acts of each job, which lead to the forms of its page.
  const withActs = (list) => list.flatMap((t) => [t, ...(t.acts || []).map((act) => ({ name: `${verbs[act]} ${t.name}…`, kind: "act", href: t.href + "#" + act }))]);

  // rank orders names: those that begin with the query, those that have it, those that have its letters in order.
  function rank(name, query) {
    const at = name.indexOf(query);
    if (at >= 0) return at === 0 ? 0 : 1;
    let i = 0;
    for (const letter of name) if (letter === query[i]) i++;
    return i === query.length ? 2 : 3;
  }

  function list() {
    const query = $("palette-input").value.trim().toLowerCase();
    shown = targets.map((t) => [rank(t.name.toLowerCase(), query), t]).filter(([r]) => r < 3).sort((a, b) => a[0] - b[0]).slice(0, 50).map(([, t]) => t);
    $("palette-list").replaceChildren(...shown.map((t, i) => {
      const item = document.createElement("li");
      const kind = document.createElement("span");
      item.id = "target-" + i;
      item.setAttribute("role", "option");
      kind.textContent = t.state ? `${t.state} ${t.kind}` : t.kind;
      item.append(t.name, kind);
      item.addEventListener("click", () => { location.href = base + t.href; });
      return item;
    }));
    choose(0);
  }

  async function openPalette() {
    if ($("palette").open) return;
    $("palette").showModal();
    $("palette-input").value = "";
    list();
    try {
      targets = withActs(await (await fetch(base + "/palette.json")).json());
    } catch {
      // The targets of the last time are still good.
    }
    list();
  }

  // unfold opens the form that the address names.
  function unfold() {
    const form = location.hash && $(location.hash.slice(1));
    if (!form || !form.matches("details")) return;
    form.open = true;
    form.querySelector("input:not([type=hidden]), button")?.focus();
  }
  addEventListener("hashchange", unfold);

  document.addEventListener("keydown", (e) => {
    const typing = e.target.matches("input, select, textarea");
    if ((e.key === "k" && (e.ctrlKey || e.metaKey)) || (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey)) {
      e.preventDefault();
      openPalette();
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    const input = $("palette-input");
    input.addEventListener("input", list);
    input.addEventListener("keydown", (e) => {
      if (e.key === "ArrowDown") choose(chosen + 1);
      else if (e.key === "ArrowUp") choose(chosen - 1);
      else if (e.key === "Enter" && shown[chosen]) location.href = base + shown[chosen].href;
      else return;
      e.preventDefault();
    });
    $("palette").addEventListener("click", (e) => { if (e.target === $("palette")) $("palette").close(); });
    const toggle = $("theme");
    toggle.hidden = false;
    const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const label = () => set(toggle, dark() ? "Light" : "Dark");
    toggle.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
      label();
    });
    label();
    document.addEventListener("input", (e) => {
      const kept = e.target.closest("[data-keep]");
      if (kept) kept.dataset.dirty = "yes";
      else if (e.target.closest("main")) e.target.dataset.dirty = "yes";
    });
    document.addEventListener("selectionchange", () => {
      selected = String(getSelection()) === "" ? 0 : Date.now();
      resume();
    });
    document.addEventListener("pointerdown", () => { pressed = true; });
    for (const name of ["pointerup", "pointercancel", "dragend"]) {
      document.addEventListener(name, () => {
        pressed = false;
        resume();
      });
    }
    window.addEventListener("blur", () => { pressed = false; });
    document.addEventListener("focusout", resume);
    $("palette").addEventListener("close", resume);
    if (new URLSearchParams(location.search).has("said")) {
      const url = new URL(location.href);
      url.searchParams.delete("said");
      history.replaceState(null, "", url);
    }
    setTimeout(() => document.querySelector(".said")?.remove(), 15000);
    for (const pre of document.querySelectorAll("[data-follow]")) pre.scrollTop = pre.scrollHeight;
    skew = renewed - Number($("main").dataset.now);
    localize();
    unfold();
    if (document.querySelector(".away")) state("Asks again by itself", "paused");
    else if ($("main").dataset.every) state("Live", "live");
    setInterval(count, 1000);
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible" && $("main").dataset.every && Date.now() - renewed > 4000) renew();
    });
    plan();
  });
})();
