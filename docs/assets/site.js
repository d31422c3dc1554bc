// Typesets formulas (KaTeX writes MathML, which needs no fonts of its own).
for (const place of document.querySelectorAll('.arithmatex')) {
  const text = place.textContent.trim();
  katex.render(text.slice(2, -2), place, {
    displayMode: text.startsWith('\\['),
    output: 'mathml',
    throwOnError: true,
  });
}

// A search box over the tables of methods.
const overview = document.querySelector('#methods-filter');
if (overview) {
  const box = document.createElement('input');
  box.type = 'search';
  box.className = 'methods-filter';
  box.placeholder = 'Find a method: name, author, optimizer';
  overview.append(box);
  const tables = document.querySelectorAll('article table');
  box.addEventListener('input', () => {
    const wanted = box.value.toLowerCase();
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
      }
    }
  });
}
