(() => {
  const faults = [];
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) {
    const widest = [...document.body.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "#" + e.id + "." + e.className);
    faults.push("it is " + page.scrollWidth + " pixels wide: " + widest.slice(0, 5).join(", "));
  }
  for (const t of document.querySelectorAll("table")) {
    const beyond = t.getBoundingClientRect().right - t.parentElement.getBoundingClientRect().right;
    if (beyond > 0.5) faults.push("a table is " + beyond.toFixed(0) + " pixels wider than its section");
  }
  const numbers = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const backOf = (e) => {
    for (; e; e = e.parentElement) {
      const back = numbers(getComputedStyle(e).backgroundColor);
      if (back.length === 3 || back[3] === 1) return back;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), e = walker.currentNode.parentElement;
    if (!text || e.closest("script, style, meter")) continue;
    texts++;
    const front = luminance(numbers(getComputedStyle(e).color)), back = luminance(backOf(e));
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    // 4.5 is the minimum of WCAG 2.2, level AA.
    if (contrast < 4.5) faults.push("the contrast of " + JSON.stringify(text) + " is " + contrast.toFixed(2));
  }
  if (texts < 5) faults.push("it has only " + texts + " texts");
  for (const e of document.querySelectorAll("input")) if (e.labels.length === 0) faults.push("#" + e.id + " has no label");
  if (document.querySelectorAll("h1").length > 1) faults.push("it has several headings of the first level");
  return faults;
})()
