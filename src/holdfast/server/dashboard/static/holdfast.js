// Everything that moves: live pages, keys, the conversation. No page needs it to be read.
"use strict";
(() => {
  const body = document.body;
  document.documentElement.classList.remove("no-script");
  const csrf = document.querySelector('meta[name="csrf"]')?.content || "";
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  document.addEventListener("htmx:config:request", (event) => {
    event.detail.ctx.request.headers["X-CSRF-Token"] = csrf;
  });

  // A part in which a person writes, has chosen something or has opened a form is in use. It is
  // left as it is until they are done: what they wrote stays, and what they look at does not move.
  const isChanged = (field) => field.matches("[type=checkbox],[type=radio]")
    ? field.checked !== field.defaultChecked
    : field.matches("textarea,input:not([type=hidden],[type=file],[type=range])") && field.value !== field.defaultValue;
  const isInUse = (part) => {
    const field = document.activeElement?.closest("textarea,select,input:not([type=checkbox],[type=radio])");
    return Boolean(field && part.contains(field)) || Boolean(one('[data-opens][aria-expanded="true"]', part))
      || all("textarea,input", part).some(isChanged);
  };
  let isHeld = false;
  const hold = () => {
    isHeld = true;
    const word = one("#live-word");
    if (word?.textContent === "live") word.textContent = "held while you write or choose";
  };
  // Asked again when the answer is there: meanwhile they may have begun to write.
  document.addEventListener("htmx:before:swap", (event) => {
    const part = event.target.closest?.("[data-live]");
    if (!part) return;
    if (isInUse(part)) { event.preventDefault(); hold(); return; }
    const open = new Set(all("details[open][id]", part).map((details) => details.id));
    const shut = new Set(all("details[id]:not([open])", part).map((details) => details.id));
    for (const task of event.detail.tasks || []) {
      all("details[id]", task.fragment).forEach((details) => {
        if (open.has(details.id)) details.open = true;
        else if (shut.has(details.id)) details.open = false;
      });
    }
  });
  ["focusout", "click", "change", "keyup"].forEach((name) => document.addEventListener(name, () => setTimeout(() => {
    if (isHeld && !all("[data-live]").some(isInUse)) {
      isHeld = false;
      const word = one("#live-word");
      if (word?.textContent.startsWith("held")) word.textContent = "live";
      window.holdfastLive?.refresh();
    }
  })));

  // --- live: a stream says that something changed, then what is shown is fetched again -----
  class Live {
    constructor(address) {
      this.address = address;
      this.pending = 0;
      this.last = 0;
      this.connect();
      document.addEventListener("visibilitychange", () => {
        if (document.hidden) this.close(); else this.connect();
      });
    }
    connect() {
      if (this.source) return;
      this.source = new EventSource(this.address);
      this.source.onopen = () => {
        this.show(true);
        this.refresh(); // what happened before it was open
      };
      this.source.addEventListener("change", () => this.refresh());
      this.source.addEventListener("stream.goodbye", () => this.again());
      this.source.onerror = () => {
        this.show(false);
        if (this.source?.readyState === EventSource.CLOSED) this.again();
      };
    }
    close() { this.source?.close(); this.source = null; }
    again() {
      this.show(false);
      this.close();
      clearTimeout(this.retry);
      this.retry = setTimeout(() => { if (!document.hidden) this.connect(); }, 1000);
    }
    show(isOn) {
      const dot = one("#live-dot");
      if (!dot) return;
      dot.className = isOn ? "dot on" : "dot off";
      one("#live-word").textContent = isOn ? "live" : "connecting again";
    }
    refresh() {
      if (this.pending) return;
      const wait = Math.max(60, 300 - (performance.now() - this.last));
      this.pending = setTimeout(() => {
        this.pending = 0;
        this.last = performance.now();
        all("[data-live]").forEach((part) => {
          if (isInUse(part)) hold(); else htmx.trigger(part, "live");
        });
      }, wait);
    }
  }
  const start = () => {
    if (body.dataset.stream) window.holdfastLive = new Live(body.dataset.stream);
    initTalk();
  };

  // --- the title counts what waits ----------------------------------------------------------
  const count = () => {
    const waiting = Number(one("[data-waiting]")?.dataset.waiting || 0);
    const bare = document.title.replace(/^\(\d+\) /, "");
    document.title = waiting ? `(${waiting}) ${bare}` : bare;
  };
  document.addEventListener("htmx:after:swap", () => { count(); mark(); });

  // --- times --------------------------------------------------------------------------------
  const span = (s) => s < 60 ? `${Math.round(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min`
    : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.round(s / 86400)} days`;
  setInterval(() => all("time[data-then]").forEach((time) => {
    const passed = Date.now() / 1000 - Number(time.dataset.then);
    if (passed >= 60) time.textContent = `${span(passed)} ago`;
  }), 30000);

  // --- clicks -------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const target = event.target;
    if (target.closest(".menu")) {
      const menu = target.closest(".menu");
      menu.setAttribute("aria-expanded", String(menu.getAttribute("aria-expanded") !== "true"));
    }
    const opener = target.closest("[data-opens]");
    if (opener) {
      const part = document.getElementById(opener.dataset.opens);
      part.hidden = !part.hidden;
      opener.setAttribute("aria-expanded", String(!part.hidden));
      if (!part.hidden) one("input:not([type=hidden]),textarea,select", part)?.focus();
    }
    if (target.id === "choose-all") all('input[name="run"]').forEach((box) => { box.checked = target.checked; });
  });
  document.addEventListener("submit", (event) => {
    const words = event.submitter?.dataset.confirm || event.target.dataset.confirm;
    if (words && !window.confirm(words)) event.preventDefault();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-sends]")) event.target.form.requestSubmit();
  });

  // --- keys: j and k go through what waits, a, d and e answer it ------------------------------
  // The chosen one is known by its id: when others come and go, a key never answers another one.
  let chosen = "";
  const asks = () => all("section.ask");
  const find = () => asks().find((ask) => ask.id === chosen);
  const mark = () => asks().forEach((ask) => ask.classList.toggle("chosen", Boolean(chosen) && ask.id === chosen));
  let place = -1;
  function move(step) {
    const list = asks();
    const at = list.findIndex((ask) => ask.id === chosen);
    place = Math.max(0, Math.min((at < 0 ? Math.min(place, list.length) - (step > 0 ? 1 : 0) : at) + step, list.length - 1));
    if (at < 0 && !chosen) place = 0;
    chosen = list[place].id;
    mark();
    list[place].scrollIntoView({block: "nearest"});
    list[place].focus({preventScroll: true});
  }
  const shut = (part) => {
    const opener = one(`[data-opens="${part.id}"]`);
    part.hidden = true;
    opener?.setAttribute("aria-expanded", "false");
    opener?.focus();
  };
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input,textarea,select,[contenteditable]");
    if (event.key === "Escape") {
      const part = event.target.closest("form[id]");
      if (part && one(`[data-opens="${part.id}"]`)) { part.reset(); shut(part); }
      else if (isTyping) event.target.blur();
      one("#keys")?.close();
      return;
    }
    if (isTyping) {
      if (event.key === "Enter" && event.target.id === "say" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        event.target.form.requestSubmit();
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && one("#search")) { event.preventDefault(); one("#search").focus(); return; }
    if (event.key === "?" && one("#keys")) { one("#keys").showModal(); return; }
    if (!asks().length) return;
    const press = (name) => { const button = one(`[data-key="${name}"]`, find()); if (button) { event.preventDefault(); button.click(); } };
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (find() && "ade".includes(event.key)) press(event.key);
  });

  // --- the conversation -----------------------------------------------------------------------
  function initTalk() {
    const form = one("#compose");
    if (!form) return;
    const place = form.closest(".compose");
    const kept = one("#files");
    const send = async (file) => {
      const address = `${form.dataset.upload}?name=${encodeURIComponent(file.name)}`;
      const answer = await fetch(address, {method: "POST", body: file, headers: {"X-CSRF-Token": csrf, "Content-Type": file.type || "application/octet-stream"}});
      const chip = document.createElement("span");
      chip.className = "chip";
      if (!answer.ok) { chip.textContent = `${file.name}: not taken`; kept.append(chip); return; }
      const found = await answer.json();
      chip.textContent = found.name;
      const field = document.createElement("input");
      field.type = "hidden"; field.name = "file"; field.value = found.id;
      chip.append(field);
      kept.append(chip);
    };
    ["dragover", "dragenter"].forEach((name) => place.addEventListener(name, (event) => { event.preventDefault(); place.classList.add("over"); }));
    ["dragleave", "drop"].forEach((name) => place.addEventListener(name, () => place.classList.remove("over")));
    place.addEventListener("drop", (event) => { event.preventDefault(); [...event.dataTransfer.files].forEach(send); });
    one("#pick")?.addEventListener("change", (event) => { [...event.target.files].forEach(send); event.target.value = ""; });
    if (one("#talk")) window.scrollTo(0, document.body.scrollHeight);
    follow();
  }
  let followed = null;
  function follow() {
    const growing = one("#growing");
    if (!growing || followed) return;
    followed = new EventSource(growing.dataset.address);
    followed.addEventListener("piece", (event) => {
      const text = one("#growing .growing");
      if (text) { text.textContent += JSON.parse(event.data).text; window.scrollTo(0, document.body.scrollHeight); }
    });
    followed.addEventListener("whole", () => { const text = one("#growing .growing"); if (text) text.textContent = ""; window.holdfastLive?.refresh(); });
    followed.addEventListener("end", () => { followed.close(); followed = null; window.holdfastLive?.refresh(); });
    followed.onerror = () => { if (followed?.readyState === EventSource.CLOSED) followed = null; };
  }
  document.addEventListener("htmx:after:swap", () => follow());

  count();
  if (document.readyState === "complete") start(); else window.addEventListener("load", start);
})();
