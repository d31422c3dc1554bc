'use strict';
// Draws the page's figures with Vega, in the colours of the reader's theme, and
// lets a method be switched on and off in all figures of its section.
(() => {
  const page = JSON.parse(document.getElementById('figures').textContent);
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const plots = [...document.querySelectorAll('[data-figure]')];
  // The methods that are switched off, by section.
  const hidden = new Map();

  function hiddenIn(element) {
    const section = element.closest('section');
    if (!hidden.has(section)) hidden.set(section, new Set());
    return hidden.get(section);
  }

  // The figure in the colours of this theme.
  function themed(figure) {
    const copy = structuredClone(figure);
    const twin = (value) => page.dark[value] || value;
    (function paint(part) {
      for (const [name, value] of Object.entries(part)) {
        if (name === 'color' && value && value.scale && value.scale.range) {
          value.scale.range = value.scale.range.map(twin);
        }
        if (value && typeof value === 'object') paint(value);
      }
    })(dark.matches ? copy.layer : []);
    return copy;
  }

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const [ink, line, grid] = ['--ink', '--line', '--grid'].map(
      (name) => style.getPropertyValue(name).trim());
    const config = structuredClone(page.theme);
    config.background = null;
    for (const part of [config.axis, config.legend, config.title]) {
      part.labelColor = part.titleColor = part.color = ink;
    }
    Object.assign(config.axis,
      {domainColor: line, gridColor: grid, tickColor: line});
    return config;
  }

  async function draw(plot) {
    if (plot.view) plot.view.finalize();
    const name = plot.dataset.figure;
    const {view} = await vegaEmbed(plot, themed(page.figures[name]), {
      config: theme(),
      // Interpreted, because the page forbids to compile more of it.
      ast: true,
      // As SVG, every point that says its values is an element.
      renderer: 'canvas',
      actions: {export: true, source: false, compiled: false, editor: false},
      downloadFileName: name,
    });
    plot.view = view;
    await hide(plot);
  }

  function hide(plot) {
    if (plot.dataset.legend !== 'yes') return null;
    return plot.view.signal('hidden', [...hiddenIn(plot)]).runAsync();
  }

  // In a closed fold there is no room to draw in.
  const shown = (plot) => !plot.closest('details:not([open])');

  function switchMethods(section) {
    const off = hiddenIn(section);
    for (const key of section.querySelectorAll('button.key')) {
      key.setAttribute('aria-pressed', String(!off.has(key.dataset.method)));
    }
    plots.filter((plot) => plot.view && section.contains(plot)).forEach(hide);
  }

  for (const key of document.querySelectorAll('button.key')) {
    const section = key.closest('section');
    const method = key.dataset.method;
    key.addEventListener('click', () => {
      const off = hiddenIn(section);
      if (!off.delete(method)) off.add(method);
      switchMethods(section);
    });
    key.addEventListener('dblclick', () => {
      // This method alone, or all of them again.
      const names = new Set([...section.querySelectorAll('button.key')].map(
        (other) => other.dataset.method));
      const off = hiddenIn(section);
      const alone = off.size === names.size - 1 && !off.has(method);
      off.clear();
      if (!alone) {
        names.delete(method);
        names.forEach((name) => off.add(name));
      }
      switchMethods(section);
    });
  }

  for (const fold of document.querySelectorAll('details')) {
    fold.addEventListener('toggle', () => {
      plots.filter((plot) => fold.contains(plot) && shown(plot) && !plot.view)
        .forEach(draw);
    });
  }
  dark.addEventListener('change', () => {
    plots.filter((plot) => plot.view).forEach(draw);
  });

  // One after the other, so that the page can be read meanwhile.
  (async () => {
    for (const plot of plots.filter(shown)) await draw(plot);
    document.documentElement.dataset.drawn = 'yes';
  })();
})();
