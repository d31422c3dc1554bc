'use strict';
// Draws the page's figures with Plotly, in the colours of the reader's theme,
// and lets a method be switched on and off in all figures of its section.
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

  // The colour of a method in this theme; its last two digits, if it has
  // eight, are its opacity.
  function themed(colour) {
    if (!dark.matches || typeof colour !== 'string') return colour;
    const twin = page.dark[colour.slice(0, 7)];
    return twin ? twin + colour.slice(7) : colour;
  }

  function paint(trace) {
    for (const part of [trace.line, trace.marker]) {
      if (part && part.color) part.color = themed(part.color);
    }
    if (trace.fillcolor) trace.fillcolor = themed(trace.fillcolor);
  }

  function decorate(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    layout.paper_bgcolor = layout.plot_bgcolor = 'rgba(0,0,0,0)';
    layout.font = {family: 'system-ui, sans-serif', size: 13,
      color: colour('--ink')};
    layout.hoverlabel = {align: 'left', bgcolor: colour('--paper'),
      bordercolor: colour('--line'), font: {color: colour('--ink')}};
    layout.modebar = {bgcolor: 'rgba(0,0,0,0)', color: colour('--faint'),
      activecolor: colour('--ink')};
    for (const axis of [layout.xaxis, layout.yaxis]) {
      axis.gridcolor = colour('--grid');
      axis.linecolor = axis.tickcolor = axis.zerolinecolor = colour('--line');
      axis.ticks = 'outside';
      axis.showline = true;
      if (axis.zeroline === undefined) axis.zeroline = false;
    }
  }

  function draw(plot) {
    const figure = structuredClone(page.figures[plot.dataset.figure]);
    const off = hiddenIn(plot);
    const lines = plot.dataset.legend === 'yes';
    for (const trace of figure.data) {
      paint(trace);
      if (lines) trace.visible = !off.has(trace.meta);
    }
    decorate(figure.layout);
    // What is left has the room of what is gone.
    if (lines && off.size) delete figure.layout.yaxis.range;
    // Who has zoomed in stays there.
    figure.layout.uirevision = 'same';
    return Plotly.react(plot, figure.data, figure.layout, {
      responsive: true,
      displaylogo: false,
      modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']],
      toImageButtonOptions: {format: 'svg', filename: plot.dataset.figure},
    });
  }

  // In a closed fold there is no room to draw in.
  const shown = (plot) => !plot.closest('details:not([open])');
  const redraw = (some) => some.filter(shown).forEach(draw);

  function switchMethods(section) {
    const off = hiddenIn(section);
    for (const key of section.querySelectorAll('button.key')) {
      key.setAttribute('aria-pressed', String(!off.has(key.dataset.method)));
    }
    redraw(plots.filter((plot) => section.contains(plot)));
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
      if (fold.open) redraw(plots.filter((plot) => fold.contains(plot)));
    });
  }
  dark.addEventListener('change', () => redraw(plots));

  // One after the other, so that the page can be read meanwhile.
  const waiting = plots.filter(shown);
  function next() {
    const plot = waiting.shift();
    if (!plot) {
      document.documentElement.dataset.drawn = 'yes';
      return;
    }
    draw(plot);
    setTimeout(next);
  }
  next();
})();
