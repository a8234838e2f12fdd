// Marks over panels: what a dashboard's annotations find, drawn as Grafana draws them.
import { renderLegendFormat } from '@grafana/data';
import { useLayoutEffect } from 'react';
import { ask } from './prometheus.js';
import { fill } from './variables.js';

const STEP = 60; // seconds between the points that Grafana asks for

// Points above 0 that follow each other are one event.
function events(mark, { metric, values }) {
  const found = [];
  for (const [time, value] of values) {
    const last = found[found.length - 1];
    if (!(Number(value) > 0)) {
      continue;
    }
    if (last && time - last.end <= STEP) {
      last.end = time;
    } else {
      found.push({ begin: time, end: time, color: mark.iconColor, text: renderLegendFormat(mark.titleFormat, metric) });
    }
  }
  return found;
}

// Returns the events of all annotations of a dashboard; times are in seconds. Those that
// began before the range begin at its edge.
export async function marks(list, variables, range, scrape) {
  const [first, last] = [range.from, range.to].map((t) => t / 1000);
  const [start, end] = [Math.ceil(first / STEP) * STEP, Math.floor(last / STEP) * STEP];
  const known = { __rate_interval: `${Math.max(STEP + scrape, 4 * scrape)}s` };
  const answers = list.map(async (mark) => {
    const { result } = await ask('query_range', { query: fill(mark.expr, variables, known), start, end, step: STEP });
    return result.flatMap((one) => events(mark, one));
  });
  return (await Promise.all(answers)).flat();
}

export function Marks({ config, found, theme }) {
  useLayoutEffect(() => {
    config.addHook('draw', (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      for (const { begin, end, color } of found) {
        const [left, right] = [begin, end].map((time) => Math.max(bbox.left, plot.valToPos(time * 1000, 'x', true)));
        ctx.strokeStyle = ctx.fillStyle = theme.visualization.getColorByName(color);
        ctx.setLineDash([4, 4]);
        ctx.beginPath();
        ctx.moveTo(left, bbox.top);
        ctx.lineTo(left, bbox.top + bbox.height);
        ctx.stroke();
        ctx.fillRect(left, bbox.top + bbox.height, Math.max(4, right - left), 4);
      }
      ctx.restore();
    });
  }, [config]);
  return null;
}
