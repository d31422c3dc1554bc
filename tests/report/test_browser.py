"""The report in Chromium: narrow and wide."""

import json
import re

import pytest

from tests import made_up
from tests.report import browser
from tff_adaptive.lab.report import page as report

pytestmark = pytest.mark.skipif(
  browser.find() is None, reason='Chromium is not installed'
)
# Of a telephone and of a small screen.
_WIDTHS = (400, 1280)
_HOSTILE = '<img src=x onerror=alert(1)>\\"${{1}} %{y}'


def _fill(root):
  """Bands, single seeds, step sizes, a heat map, and a name that is hostile."""
  for method, seeds in (('fedavg', 5), ('fedadam', 2), ('delta_sgd', 1)):
    for rate in (0.01, 0.1) if method == 'fedadam' else (1.0,):
      for client in (0.01, 0.1) if method == 'fedadam' else (None,):
        for seed in range(seeds):
          made_up.run(
            root,
            f'{method}-{rate}-{client}-{seed}',
            f'--algorithm={method}',
            f'--server_learning_rate={rate}',
            *([f'--client_learning_rate={client}'] if client else []),
            f'--seed={seed}',
            '--total_rounds=20',
          )
  hostile = made_up.run(root, 'hostile', '--total_rounds=20')
  hparams = json.loads((hostile / 'hparams.json').read_text())
  hparams['settings']['algorithm'] = _HOSTILE
  (hostile / 'hparams.json').write_text(json.dumps(hparams))
  return root


@pytest.fixture(name='page', scope='module')
def page_fixture(tmp_path_factory):
  path, complaints = report.write(_fill(tmp_path_factory.mktemp('runs')))
  assert not complaints
  return path


@pytest.fixture(name='chromium', scope='module')
def chromium_fixture(tmp_path_factory):
  with browser.Browser(tmp_path_factory.mktemp('profile')) as chromium:
    yield chromium


def check_layout(chromium, width):
  """Nothing is wider than the window, or than what it stands in."""
  assert chromium.evaluate('innerWidth') == width
  assert chromium.evaluate('document.documentElement.scrollWidth') <= width
  beyond = chromium.evaluate("""
    [...document.body.querySelectorAll('*')]
      .filter((e) => !e.closest('.scroll > *, svg'))
      .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)
      .map((e) => e.outerHTML.slice(0, 200))
  """)
  assert not beyond


def check_figures(chromium):
  """Every figure outside of closed folds is drawn, and large enough to read."""
  shown = chromium.evaluate("""
    [...document.querySelectorAll('[data-figure]')]
      .filter((plot) => !plot.closest('details:not([open])'))
      .map((plot) => {
        const canvas = plot.querySelector('canvas');
        const copy = new OffscreenCanvas(canvas.width, canvas.height)
          .getContext('2d', {willReadFrequently: true});
        copy.drawImage(canvas, 0, 0);
        const pixels =
          copy.getImageData(0, 0, canvas.width, canvas.height).data;
        return [plot.dataset.figure, plot.view.width(), plot.view.height(),
          new Set(new Uint32Array(pixels.buffer)).size];
      })
  """)
  assert len(shown) >= 8
  for name, width, height, colours in shown:
    assert width >= 150 and height >= 60 and colours > 20, name
  letters = chromium.evaluate("""
    [...document.querySelectorAll('figcaption')]
      .map((e) => parseFloat(getComputedStyle(e).fontSize))
  """)
  letters += chromium.evaluate("""(() => {
    const {axis, legend, text} =
      JSON.parse(document.getElementById('figures').textContent).theme;
    return [axis.labelFontSize, axis.titleFontSize, legend.labelFontSize,
      legend.titleFontSize, text.fontSize];
  })()""")
  assert min(letters) >= 11
  return [name for name, *_ in shown]


@pytest.mark.parametrize('width', _WIDTHS)
def test_fits_the_window_and_shows_every_figure(chromium, page, width):
  chromium.open(page, width=width)
  check_layout(chromium, width)
  names = check_figures(chromium)
  assert {'training_loss', 'time', 'heat_map_fedadam'} <= set(names)
  folded = chromium.evaluate("""
    document.querySelectorAll('details').forEach((fold) => {
      fold.open = true;
    });
    document.querySelectorAll('[data-figure]').length
  """)
  drawn = "document.querySelectorAll('[data-figure] canvas').length"
  chromium.wait(f'{drawn} === {folded}')
  check_layout(chromium, width)
  assert len(check_figures(chromium)) == folded > len(names)
  assert not chromium.complaints
  # Legends of colours are pictures, which are inside the page.
  assert all(
    url == page.as_uri() or url.startswith('data:image/png;')
    for url in chromium.requests
  )


_PLOT = "document.querySelector('[data-figure=validation]')"


def test_points_say_their_values_and_parts_are_zoomed(chromium, page):
  chromium.open(page, width=1280)
  x, y, left, top, wide, high = chromium.evaluate(f"""
    (() => {{
      const plot = {_PLOT};
      plot.scrollIntoView();
      const area = plot.querySelector('canvas').getBoundingClientRect();
      const {{left, top}} = plot.view.padding();
      const [x, y] = [plot.view.origin()[0] + left,
        plot.view.origin()[1] + top];
      const find = (item) => item.datum && item.datum.x === 10 ? item
        : (item.items || []).map(find).find((found) => found);
      const {{datum}} = find(plot.view.scenegraph().root);
      return [area.x + x + plot.view.scale('x')(10),
        area.y + y + plot.view.scale('y')(datum.y),
        area.x + x, area.y + y, plot.view.width(), plot.view.height()];
    }})()
  """)

  def mouse(kind, x, y, **more):
    chromium.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, **more)

  said = "(document.querySelector('.vg-tooltip.visible') || {}).textContent"
  mouse('mouseMoved', x - 40, y - 40)
  mouse('mouseMoved', x, y)
  chromium.wait(f'!!{said}')
  assert re.search(
    r'Round:?10Validation accuracy \(%\):?\d+', chromium.evaluate(said)
  )
  whole = f"JSON.stringify({_PLOT}.view.scale('x').domain())"
  before = chromium.evaluate(whole)
  middle = (left + wide / 2, top + high / 2)
  # Without the key, the wheel is the page's.
  wheel = dict(deltaX=0, deltaY=-240)
  scrolled = chromium.evaluate('scrollY')
  mouse('mouseWheel', *middle, **wheel)
  chromium.wait(f'scrollY < {scrolled}')
  assert chromium.evaluate(whole) == before
  chromium.evaluate(f'{_PLOT}.scrollIntoView()')
  mouse('mouseMoved', *middle)
  mouse('mouseWheel', *middle, modifiers=2, **wheel)
  chromium.wait(f"{whole} !== '{before}'")
  zoomed = chromium.evaluate(whole)
  held = dict(button='left', buttons=1, clickCount=1)
  for kind, share in (
    ('mousePressed', 0.3),
    ('mouseMoved', 0.5),
    ('mouseReleased', 0.5),
  ):
    mouse(kind, left + share * wide, top + share * high, **held)
  chromium.wait(f"{whole} !== '{zoomed}'")
  assert not chromium.complaints


def test_no_other_script_runs(chromium, page):
  chromium.open(page, width=1280)
  chromium.evaluate("""
    const added = document.createElement('script');
    added.textContent = 'window.added = true';
    document.head.append(added);
  """)
  assert chromium.evaluate('window.added === undefined')
  # The hostile name is a name, wherever it stands.
  assert chromium.evaluate("document.querySelectorAll('body img').length") == 0
  names = chromium.evaluate(f"{_PLOT}.view.scale('color').domain()")
  assert _HOSTILE in names
  chromium.complaints.clear()


def test_what_is_too_wide_and_what_fails_is_noticed(chromium, page, tmp_path):
  """The checks above can fail."""
  text = page.read_text(encoding='utf-8')
  broken = tmp_path / 'broken.html'
  wide = '<div style="width: 500px">wide</div>'
  broken.write_text(text.replace('<h3>Results', wide + '<h3>Results'))
  chromium.open(broken, width=400)
  with pytest.raises(AssertionError):
    check_layout(chromium, 400)
  broken.write_text(text.replace('"figures":', '"pictures":', 1))
  with pytest.raises(RuntimeError, match='TypeError'):
    chromium.open(broken, width=400)
  chromium.complaints.clear()
