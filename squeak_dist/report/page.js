// Gives the figures, which are drawn on canvases, the colours of the page, light or dark.
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const labels = ["text_color", "axis_label_text_color", "major_label_text_color",
    "label_text_color", "title_text_color"];
  function paint() {
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    for (const doc of Bokeh.documents)
      for (const root of doc.roots())
        for (const model of root.references()) {
          if (!/Axis$|^Title$|^Legend$|^ColorBar$/.test(model.type)) continue;
          const own = labels.filter((name) => name in model.properties);
          model.setv(Object.fromEntries(own.map((name) => [name, ink])));
        }
  }
  function whenDrawn() {
    if (Bokeh.documents.length === 0) return void setTimeout(whenDrawn, 20);
    paint();
    dark.addEventListener("change", paint);
  }
  whenDrawn();
})();
