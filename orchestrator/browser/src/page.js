// Runs in an isolated world of the page: this script and those of the page do not see each other's objects.
globalThis.glovebox ??= (() => {
  "use strict";
  // An element keeps its id as long as its page is open. Only elements of the latest observation can be used.
  const ids = new WeakMap();
  let listed = new Map();
  // The interactive elements among them.
  let operable = [];
  let lastId = 0;

  const idOf = (element) => {
    if (!ids.has(element)) ids.set(element, String(++lastId));
    const id = ids.get(element);
    listed.set(id, element);
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
  const OPERABLE_ROLES = new Set([
    "link", "button", "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "slider", "spinbutton", "file",
    "color", "switch", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "option", "treeitem",
  ]);
  // The name of these is their content.
  const NAMED_BY_CONTENT = new Set([
    "link", "button", "heading", "option", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "treeitem", "switch",
    "label",
  ]);
  const IGNORED = new Set(["script", "style", "noscript", "template", "head", "meta", "link", "title"]);

  // Whether a label names a visible field.
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

  const normalize = (text, max) => {
    const normalized = text.replace(/\s+/g, " ").trim();
    return normalized.length > max ? `${normalized.slice(0, max)}…` : normalized;
  };

  // Returns the start of the text in an element. Visits a limited number of nodes.
  const textOf = (element, max) => {
    const walker = element.ownerDocument.createTreeWalker(element, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    let text = "";
    for (let seen = 0; seen < 300 && text.length <= max; seen++) {
      const node = walker.nextNode();
      if (!node) break;
      if (node.nodeType === Node.TEXT_NODE && !IGNORED.has(node.parentElement?.localName)) {
        text += ` ${node.substringData(0, max * 2)}`;
      } else if (node.localName === "img") {
        text += ` ${node.alt.slice(0, max)}`;
      }
    }
    return text;
  };

  const nameOf = (element, role, max) => {
    const labelled = (element.getAttribute("aria-labelledby") || "").split(/\s+/).slice(0, 5);
    const byOthers = labelled.map((id) => id && element.getRootNode().getElementById?.(id)).filter(Boolean);
    const labels = Array.from(element.labels || []).slice(0, 3);
    const isButton = element.localName === "input" && role === "button";
    const found =
      byOthers.map((other) => textOf(other, max)).join(" ").trim() ||
      element.getAttribute("aria-label")?.slice(0, max * 2) ||
      labels.map((label) => textOf(label, max)).join(" ").trim() ||
      (isButton && (element.value || element.alt || element.type).slice(0, max * 2)) ||
      element.getAttribute("alt")?.slice(0, max * 2) ||
      (NAMED_BY_CONTENT.has(role) && textOf(element, max).trim()) ||
      element.getAttribute("placeholder")?.slice(0, max * 2) ||
      element.getAttribute("title")?.slice(0, max * 2) ||
      "";
    return normalize(found, max);
  };

  const factsOf = (element, role, isClickable) => {
    const facts = [];
    if (isClickable && !OPERABLE_ROLES.has(role)) facts.push("clickable");
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
      facts.push(`value=${quoted(normalize(value, 200))}`);
    }
    if (role === "Iframe" && !frameDocument(element)) facts.push("of another origin, not shown");
    return facts;
  };

  const quoted = (text) => `'${text.replace(/\\/g, "\\\\").replace(/'/g, "\\'")}'`;

  // The document of a frame of the same origin.
  const frameDocument = (element) => {
    try { return element.contentDocument; } catch { return null; }
  };

  const firstInside = (element, role) => {
    if (element.localName === "iframe" || element.localName === "frame") return frameDocument(element)?.documentElement;
    if (["svg", "canvas", "video", "audio"].includes(element.localName)) return null;
    return element.shadowRoot?.firstChild || element.firstChild;
  };

  // Describes the page in lines, without the content above the viewport if `isBelow`.
  const walk = (bounds, isBelow) => {
    listed = new Map();
    operable = [];
    const lines = [];
    let letters = 0, seen = 0, isCut = false;
    const addLine = (depth, line) => {
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
        // The children of a shadow host follow its shadow tree.
        if (level.light) [level.node, level.light] = [level.light, null];
        else stack.pop();
        continue;
      }
      level.node = node.nextSibling;
      if (++seen > bounds.nodes) { isCut = true; break; }
      if (node.nodeType === Node.TEXT_NODE) {
        if (level.isNamed) continue;
        const text = normalize(node.substringData(0, bounds.text * 2), bounds.text);
        if (!text) continue;
        if (isBelow) { range.selectNode(node); if (isAbove(range.getBoundingClientRect())) continue; }
        addLine(level.depth, `StaticText ${quoted(text)}`);
        continue;
      }
      if (node.nodeType !== Node.ELEMENT_NODE || IGNORED.has(node.localName) || !isShown(node)) continue;
      const role = roleOf(node);
      const isClickable =
        node.hasAttribute("onclick") || (node.tabIndex >= 0 && !OPERABLE_ROLES.has(role) && node.localName !== "iframe") ||
        (getComputedStyle(node).cursor === "pointer" &&
          !(node.parentElement && getComputedStyle(node.parentElement).cursor === "pointer"));
      let depth = level.depth, isNamed = level.isNamed || (node.localName === "label" && names(node));
      if (role || isClickable) {
        const isAboveWindow = isAbove(node.getBoundingClientRect());
        if (!isAboveWindow) {
          const name = nameOf(node, role, bounds.name);
          const facts = factsOf(node, role, isClickable);
          addLine(depth, [`[${idOf(node)}] ${role || "generic"} ${quoted(name)}`, ...facts].join(", "));
          if (OPERABLE_ROLES.has(role) || isClickable) operable.push(node);
          depth++;
        }
        // The content is not repeated if it is the name.
        if (NAMED_BY_CONTENT.has(role) && node.childElementCount < 50) isNamed = true;
      }
      if (role === "textbox" && node.localName === "textarea") continue;
      const inside = firstInside(node, role);
      if (!inside) continue;
      if (stack.length >= bounds.nesting) { isCut = true; continue; }
      const light = node.shadowRoot ? node.firstChild : null;
      stack.push({ node: inside, light: inside === light ? null : light, depth, isNamed });
    }
    return { text: lines.join("\n"), isCut };
  };

  const elementById = (id) => {
    const element = listed.get(id);
    if (!element) throw new Error(`there is no element ${id.slice(0, 20)} in the latest observation of this page`);
    if (!element.isConnected) throw new Error(`the element ${id} is not on the page any more`);
    return element;
  };

  const dispatchChange = (element) => {
    element.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    element.dispatchEvent(new Event("change", { bubbles: true }));
  };

  const focused = () => {
    let element = document.activeElement;
    for (let depth = 0; depth < 20; depth++) {
      const inner = element?.shadowRoot?.activeElement || (element && frameDocument(element)?.activeElement);
      if (!inner) break;
      element = inner;
    }
    return element && element !== element.ownerDocument.body && listed.get(ids.get(element)) ? ids.get(element) : "";
  };

  // Returns the position of an element in the viewport, across frames of the same origin. `null` if it is not visible.
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

  const withStyle = (element, style) => {
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
    // Draws a frame with its id around each interactive element, above the page. Uses a closed shadow tree, whose content the
    // page cannot access. Returns the number of frames.
    mark(max) {
      unmark();
      const boxes = [];
      for (const element of operable) {
        const box = boxes.length < max && element.isConnected && boxOf(element);
        if (box) boxes.push([ids.get(element), box]);
      }
      if (!boxes.length || !document.documentElement) return 0;
      marks = withStyle(document.createElement("div"), {
        all: "initial", position: "fixed", left: "0", top: "0", width: "100vw", height: "100vh", display: "block",
        overflow: "hidden", "pointer-events": "none", "z-index": "2147483647",
      });
      const tree = marks.attachShadow({ mode: "closed" });
      for (const [number, [id, box]] of boxes.entries()) {
        const colour = COLOURS[number % COLOURS.length];
        const left = Math.max(box.left, 0), top = Math.max(box.top, 0);
        const frame = withStyle(document.createElement("div"), {
          position: "absolute", left: `${left}px`, top: `${top}px`, width: `${box.left + box.width - left}px`,
          height: `${box.top + box.height - top}px`, outline: `2px solid ${colour}`,
        });
        const label = withStyle(document.createElement("div"), {
          position: "absolute", left: "0", top: top < 14 ? "0" : "-14px", background: colour, color: "white",
          font: "bold 12px/14px monospace", padding: "0 2px", "white-space": "nowrap",
        });
        label.textContent = id;
        frame.append(label);
        tree.append(frame);
      }
      marks.popover = "manual";
      document.documentElement.append(marks);
      // Also above dialogs.
      try { marks.showPopover(); } catch { /* then it is above all but dialogs */ }
      return boxes.length;
    },
    unmark,
    observe(bounds) {
      let page = walk(bounds, false), isBelow = false;
      if (page.isCut && scrollY > 0) [page, isBelow] = [walk(bounds, true), true];
      const height = document.documentElement ? document.documentElement.scrollHeight : 0;
      return {
        ...page, isBelow, focused: focused(), title: normalize(document.title.slice(0, 1000), 200),
        scrolled: Math.round(scrollY), height, window: innerHeight,
      };
    },
    element: elementById,
    focus(id) {
      elementById(id).focus();
    },
    // Selects the content of a field, and returns whether the value must be typed. Otherwise the value has been set.
    fill(id, value) {
      const element = elementById(id);
      element.scrollIntoView({ block: "nearest", behavior: "instant" });
      if (element.matches(":disabled") || element.readOnly) throw new Error(`the element ${id} cannot be edited`);
      element.focus();
      if (element.isContentEditable) {
        const selection = element.ownerDocument.getSelection();
        selection.selectAllChildren(element);
        return true;
      }
      if (element.localName !== "input" && element.localName !== "textarea") {
        throw new Error(`the element ${id} is not a field that can be filled`);
      }
      const chosen = ["checkbox", "radio", "file", "button", "submit", "reset", "image"];
      if (chosen.includes(element.type)) throw new Error(`the element ${id} is not a field that can be filled`);
      if (["date", "time", "datetime-local", "month", "week", "color", "range"].includes(element.type)) {
        element.value = value;
        if (element.value !== value) throw new Error(`the field ${id} does not accept this value`);
        dispatchChange(element);
        return false;
      }
      element.select();
      return true;
    },
    select(id, values) {
      const element = elementById(id);
      if (element.localName !== "select") throw new Error(`the element ${id} is not a list of options`);
      const options = Array.from(element.options);
      const found = values.map((value) =>
        options.find((option) => option.value === value) ||
        options.find((option) => normalize(option.label || option.text, 1000) === value.trim()));
      const missing = found.findIndex((option) => !option);
      if (missing >= 0) throw new Error(`there is no option ${values[missing].slice(0, 100)}`);
      if (found.length > 1 && !element.multiple) throw new Error("only one option can be selected here");
      for (const option of options) option.selected = found.includes(option);
      dispatchChange(element);
    },
  };
})();
