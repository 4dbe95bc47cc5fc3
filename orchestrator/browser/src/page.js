// Runs in a world of its own in the page: what the page does to its own objects is not seen here, nor is this seen there.
globalThis.glovebox ??= (() => {
  "use strict";
  // An element keeps its id as long as its page is open; only those that were told last can be named.
  const ids = new WeakMap();
  let told = new Map();
  // Of those, what can be operated.
  let operable = [];
  let lastId = 0;

  const idOf = (element) => {
    if (!ids.has(element)) ids.set(element, String(++lastId));
    const id = ids.get(element);
    told.set(id, element);
    return id;
  };

  const ROLES = {
    a: "link", button: "button", summary: "button", textarea: "textbox", option: "option", img: "image", svg: "image",
    canvas: "canvas", video: "video", audio: "audio", h1: "heading", h2: "heading", h3: "heading", h4: "heading",
    h5: "heading", h6: "heading", ul: "list", ol: "list", li: "listitem", table: "table", tr: "row", td: "cell",
    th: "columnheader", nav: "navigation", main: "main", form: "form", dialog: "dialog", fieldset: "group",
    iframe: "Iframe", frame: "Iframe", label: "label", header: "banner", footer: "contentinfo", article: "article",
  };
  const INPUTS = {
    button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox", radio: "radio",
    range: "slider", number: "spinbutton", search: "searchbox", file: "file", color: "color",
  };
  const OPERATED = new Set([
    "link", "button", "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "slider", "spinbutton", "file",
    "color", "switch", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "option", "treeitem",
  ]);
  // Named by what is in them.
  const BY_CONTENT = new Set([
    "link", "button", "heading", "option", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "treeitem", "switch",
    "label",
  ]);
  const SILENT = new Set(["script", "style", "noscript", "template", "head", "meta", "link", "title"]);

  // A label that only names a field that is to be seen itself.
  const names = (label) => label.control && label.control !== label && isShown(label.control);

  const roleOf = (element) => {
    const role = (element.getAttribute("role") || "").trim().split(/\s+/)[0].slice(0, 30);
    if (role && role !== "presentation" && role !== "none") return role;
    const tag = element.localName;
    if (tag === "input") return element.type === "hidden" ? null : INPUTS[element.type] || "textbox";
    if (tag === "select") return element.multiple ? "listbox" : "combobox";
    if (tag === "a" && !element.hasAttribute("href")) return null;
    if (tag === "label" && names(element)) return null;
    if (element.isContentEditable && !element.parentElement?.isContentEditable) return "textbox";
    return ROLES[tag] || null;
  };

  const isShown = (element) => {
    if (element.getAttribute("aria-hidden") === "true") return false;
    if (element.localName === "option" || element.localName === "optgroup") return true;
    return element.checkVisibility({ visibilityProperty: true }) || getComputedStyle(element).display === "contents";
  };

  const tidy = (text, most) => {
    const tidied = text.replace(/\s+/g, " ").trim();
    return tidied.length > most ? `${tidied.slice(0, most)}…` : tidied;
  };

  // The text within, from its beginning, with a bound on how far is looked.
  const textOf = (element, most) => {
    const walker = element.ownerDocument.createTreeWalker(element, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    let text = "";
    for (let seen = 0; seen < 300 && text.length <= most; seen++) {
      const node = walker.nextNode();
      if (!node) break;
      if (node.nodeType === Node.TEXT_NODE && !SILENT.has(node.parentElement?.localName)) {
        text += ` ${node.substringData(0, most * 2)}`;
      } else if (node.localName === "img") {
        text += ` ${node.alt.slice(0, most)}`;
      }
    }
    return text;
  };

  const nameOf = (element, role, most) => {
    const labelled = (element.getAttribute("aria-labelledby") || "").split(/\s+/).slice(0, 5);
    const byOthers = labelled.map((id) => id && element.getRootNode().getElementById?.(id)).filter(Boolean);
    const labels = Array.from(element.labels || []).slice(0, 3);
    const isButton = element.localName === "input" && role === "button";
    const found =
      byOthers.map((other) => textOf(other, most)).join(" ").trim() ||
      element.getAttribute("aria-label")?.slice(0, most * 2) ||
      labels.map((label) => textOf(label, most)).join(" ").trim() ||
      (isButton && (element.value || element.alt || element.type).slice(0, most * 2)) ||
      element.getAttribute("alt")?.slice(0, most * 2) ||
      (BY_CONTENT.has(role) && textOf(element, most).trim()) ||
      element.getAttribute("placeholder")?.slice(0, most * 2) ||
      element.getAttribute("title")?.slice(0, most * 2) ||
      "";
    return tidy(found, most);
  };

  const factsOf = (element, role, isClickable) => {
    const facts = [];
    if (isClickable && !OPERATED.has(role)) facts.push("clickable");
    if (/^h[1-6]$/.test(element.localName)) facts.push(`level=${element.localName[1]}`);
    if (element.matches(":disabled") || element.getAttribute("aria-disabled") === "true") facts.push("disabled");
    if (element.checked || element.getAttribute("aria-checked") === "true") facts.push("checked");
    if (element.selected || element.getAttribute("aria-selected") === "true") facts.push("selected");
    const expanded = element.getAttribute("aria-expanded");
    if (expanded === "true" || expanded === "false") facts.push(`expanded=${expanded}`);
    if (element.required) facts.push("required");
    if (element.readOnly && role === "textbox") facts.push("readonly");
    if (element === element.getRootNode().activeElement && element !== document.body) facts.push("focused");
    const isField = ["textbox", "searchbox", "spinbutton", "slider", "color", "combobox"].includes(role);
    if (isField && typeof element.value === "string" && element.value) {
      const value = element.type === "password" ? "•".repeat(Math.min(element.value.length, 8)) : element.value.slice(0, 400);
      facts.push(`value=${quoted(tidy(value, 200))}`);
    }
    if (role === "Iframe" && !framed(element)) facts.push("of another origin, not shown");
    return facts;
  };

  const quoted = (text) => `'${text.replace(/\\/g, "\\\\").replace(/'/g, "\\'")}'`;

  // The document of a frame of the same origin.
  const framed = (element) => {
    try { return element.contentDocument; } catch { return null; }
  };

  const insideOf = (element, role) => {
    if (element.localName === "iframe" || element.localName === "frame") return framed(element)?.documentElement;
    if (["svg", "canvas", "video", "audio"].includes(element.localName)) return null;
    return element.shadowRoot?.firstChild || element.firstChild;
  };

  // The page as lines. `isBelow`: without what is above the window.
  const walk = (bounds, isBelow) => {
    told = new Map();
    operable = [];
    const lines = [];
    let letters = 0, seen = 0, isCut = false;
    const tell = (depth, line) => {
      const whole = "\t".repeat(Math.min(depth, bounds.depth)) + line;
      letters += whole.length + 1;
      if (letters > bounds.letters || lines.length >= bounds.lines) isCut = true;
      else lines.push(whole);
    };
    const isAbove = (box) => isBelow && box.bottom < 0 && box.height > 0;
    const range = document.createRange();
    const stack = [{ node: document.documentElement, light: null, depth: 0, isNamed: false }];
    while (stack.length && !isCut) {
      const level = stack[stack.length - 1];
      const node = level.node;
      if (!node) {
        // After a shadow tree comes what its host holds.
        if (level.light) [level.node, level.light] = [level.light, null];
        else stack.pop();
        continue;
      }
      level.node = node.nextSibling;
      if (++seen > bounds.nodes) { isCut = true; break; }
      if (node.nodeType === Node.TEXT_NODE) {
        if (level.isNamed) continue;
        const text = tidy(node.substringData(0, bounds.text * 2), bounds.text);
        if (!text) continue;
        if (isBelow) { range.selectNode(node); if (isAbove(range.getBoundingClientRect())) continue; }
        tell(level.depth, `StaticText ${quoted(text)}`);
        continue;
      }
      if (node.nodeType !== Node.ELEMENT_NODE || SILENT.has(node.localName) || !isShown(node)) continue;
      const role = roleOf(node);
      const isClickable =
        node.hasAttribute("onclick") || (node.tabIndex >= 0 && !OPERATED.has(role) && node.localName !== "iframe") ||
        (getComputedStyle(node).cursor === "pointer" &&
          !(node.parentElement && getComputedStyle(node.parentElement).cursor === "pointer"));
      let depth = level.depth, isNamed = level.isNamed || (node.localName === "label" && names(node));
      if (role || isClickable) {
        const isAboveWindow = isAbove(node.getBoundingClientRect());
        if (!isAboveWindow) {
          const name = nameOf(node, role, bounds.name);
          const facts = factsOf(node, role, isClickable);
          tell(depth, [`[${idOf(node)}] ${role || "generic"} ${quoted(name)}`, ...facts].join(", "));
          if (OPERATED.has(role) || isClickable) operable.push(node);
          depth++;
        }
        // What is in the name already is not told once more.
        if (BY_CONTENT.has(role) && node.childElementCount < 50) isNamed = true;
      }
      if (role === "textbox" && node.localName === "textarea") continue;
      const inside = insideOf(node, role);
      if (!inside) continue;
      if (stack.length >= bounds.nesting) { isCut = true; continue; }
      const light = node.shadowRoot ? node.firstChild : null;
      stack.push({ node: inside, light: inside === light ? null : light, depth, isNamed });
    }
    return { text: lines.join("\n"), isCut };
  };

  const named = (id) => {
    const element = told.get(id);
    if (!element) throw new Error(`there is no element ${id.slice(0, 20)} in what was told last of this page`);
    if (!element.isConnected) throw new Error(`the element ${id} is not on the page any more`);
    return element;
  };

  const changed = (element) => {
    element.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    element.dispatchEvent(new Event("change", { bubbles: true }));
  };

  const focused = () => {
    let element = document.activeElement;
    for (let depth = 0; depth < 20; depth++) {
      const inner = element?.shadowRoot?.activeElement || (element && framed(element)?.activeElement);
      if (!inner) break;
      element = inner;
    }
    return element && element !== element.ownerDocument.body && told.get(ids.get(element)) ? ids.get(element) : "";
  };

  // Where an element is in the window, across frames of the same origin; nothing where it cannot be seen there.
  const boxOf = (element) => {
    let { left, top, width, height } = element.getBoundingClientRect();
    if (width < 3 || height < 3) return null;
    const [x, y] = [left + width / 2, top + height / 2];
    const above = element.getRootNode().elementFromPoint?.(x, y);
    if (above && !above.contains(element) && !element.contains(above)) return null;
    for (let view = element.ownerDocument.defaultView; view && view !== window; view = view.parent) {
      const frame = view.frameElement;
      if (!frame) return null;
      const outer = frame.getBoundingClientRect();
      [left, top] = [left + outer.left + frame.clientLeft, top + outer.top + frame.clientTop];
    }
    const isInside = left < innerWidth && top < innerHeight && left + width > 0 && top + height > 0;
    return isInside ? { left, top, width, height } : null;
  };

  const styled = (element, style) => {
    for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value, "important");
    return element;
  };

  const COLOURS = ["#c00000", "#0050c0", "#007a30", "#8a00a0", "#a05000", "#00707a"];
  let marks = null;
  const unmark = () => {
    marks?.remove();
    marks = null;
  };

  return {
    // Draws a frame with its id around what can be operated, above all else in the window. In a tree of its own, which the
    // page can see to be there and not look into. Says how many there are.
    mark(most) {
      unmark();
      const boxes = [];
      for (const element of operable) {
        const box = boxes.length < most && element.isConnected && boxOf(element);
        if (box) boxes.push([ids.get(element), box]);
      }
      if (!boxes.length || !document.documentElement) return 0;
      marks = styled(document.createElement("div"), {
        all: "initial", position: "fixed", left: "0", top: "0", width: "100vw", height: "100vh", display: "block",
        overflow: "hidden", "pointer-events": "none", "z-index": "2147483647",
      });
      const tree = marks.attachShadow({ mode: "closed" });
      for (const [number, [id, box]] of boxes.entries()) {
        const colour = COLOURS[number % COLOURS.length];
        const left = Math.max(box.left, 0), top = Math.max(box.top, 0);
        const frame = styled(document.createElement("div"), {
          position: "absolute", left: `${left}px`, top: `${top}px`, width: `${box.left + box.width - left}px`,
          height: `${box.top + box.height - top}px`, outline: `2px solid ${colour}`,
        });
        const label = styled(document.createElement("div"), {
          position: "absolute", left: "0", top: top < 14 ? "0" : "-14px", background: colour, color: "white",
          font: "bold 12px/14px monospace", padding: "0 2px", "white-space": "nowrap",
        });
        label.textContent = id;
        frame.append(label);
        tree.append(frame);
      }
      marks.popover = "manual";
      document.documentElement.append(marks);
      // Above dialogs too.
      try { marks.showPopover(); } catch { /* where it cannot, it is above all else */ }
      return boxes.length;
    },
    unmark,
    observe(bounds) {
      let page = walk(bounds, false), isBelow = false;
      if (page.isCut && scrollY > 0) [page, isBelow] = [walk(bounds, true), true];
      const height = document.documentElement ? document.documentElement.scrollHeight : 0;
      return {
        ...page, isBelow, focused: focused(), title: tidy(document.title.slice(0, 1000), 200),
        scrolled: Math.round(scrollY), height, window: innerHeight,
      };
    },
    element: named,
    focus(id) {
      named(id).focus();
    },
    // Makes ready for text to be typed over what is there; or puts it there where nothing can be typed.
    fill(id, value) {
      const element = named(id);
      element.scrollIntoView({ block: "nearest", behavior: "instant" });
      if (element.matches(":disabled") || element.readOnly) throw new Error(`the element ${id} cannot be edited`);
      element.focus();
      if (element.isContentEditable) {
        const selection = element.ownerDocument.getSelection();
        selection.selectAllChildren(element);
        return true;
      }
      if (element.localName !== "input" && element.localName !== "textarea") {
        throw new Error(`the element ${id} is no field that can be filled`);
      }
      const chosen = ["checkbox", "radio", "file", "button", "submit", "reset", "image"];
      if (chosen.includes(element.type)) throw new Error(`the element ${id} is no field that can be filled`);
      if (["date", "time", "datetime-local", "month", "week", "color", "range"].includes(element.type)) {
        element.value = value;
        if (element.value !== value) throw new Error(`the field ${id} does not take this value`);
        changed(element);
        return false;
      }
      element.select();
      return true;
    },
    select(id, wanted) {
      const element = named(id);
      if (element.localName !== "select") throw new Error(`the element ${id} is no list to choose from`);
      const options = Array.from(element.options);
      const found = wanted.map((want) =>
        options.find((option) => option.value === want) ||
        options.find((option) => tidy(option.label || option.text, 1000) === want.trim()));
      const missing = found.findIndex((option) => !option);
      if (missing >= 0) throw new Error(`there is no option ${wanted[missing].slice(0, 100)}`);
      if (found.length > 1 && !element.multiple) throw new Error("only one option can be chosen here");
      for (const option of options) option.selected = found.includes(option);
      changed(element);
    },
  };
})();
