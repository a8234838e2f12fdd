// Queries of panels, asked of a real Prometheus, as Grafana's data frames.
import { FieldType, rangeUtil, toDataFrame } from '@grafana/data';
import { fill } from './variables.js';

export async function ask(path, query) {
  const answer = await fetch(`/prometheus/api/v1/${path}?${new URLSearchParams(query)}`);
  const body = await answer.json();
  if (body.status !== 'success') {
    throw new Error(body.error || answer.statusText);
  }
  return body.data;
}

const SPECIAL = { '+Inf': Infinity, '-Inf': -Infinity };
const number = (text) => SPECIAL[text] ?? Number(text);

function nameOf(target, labels) {
  if (target.legendFormat && target.legendFormat !== '__auto') {
    return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
  }
  const { __name__ = '', ...others } = labels;
  return `${__name__}{${Object.entries(others).map(([k, v]) => `${k}="${v}"`).join(', ')}}`;
}

// Grafana's own rule for $__interval and $__rate_interval, with the scrape interval.
function times(panel, range, width, scrape) {
  const most = panel.maxDataPoints || Math.max(100, Math.round(width));
  const chosen = rangeUtil.calculateInterval(range, most, panel.interval || `${scrape}s`);
  const step = Math.max(1, Math.round(chosen.intervalMs / 1000));
  const whole = Math.round((range.to - range.from) / 1000);
  const known = {
    __interval: `${step}s`,
    __interval_ms: step * 1000,
    __rate_interval: `${Math.max(step + scrape, 4 * scrape)}s`,
    __range: `${whole}s`,
    __range_s: whole,
    __from: range.from.valueOf(),
    __to: range.to.valueOf(),
  };
  return { step, known };
}

function value(target, labels, stamps, values) {
  const config = { displayNameFromDS: nameOf(target, labels) };
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: stamps },
      { name: 'Value', type: FieldType.number, labels, config, values },
    ],
  });
}

function rows(target, results, several) {
  const labels = [...new Set(results.flatMap((one) => Object.keys(one.metric)))].sort();
  const text = labels.map((label) => ({
    name: label,
    type: FieldType.string,
    values: results.map((one) => one.metric[label] ?? ''),
  }));
  const stamps = results.map((one) => one.value[0] * 1000);
  const name = several ? `Value #${target.refId}` : 'Value';
  const values = results.map((one) => number(one.value[1]));
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: stamps },
      ...text,
      { name, type: FieldType.number, values },
    ],
  });
}

// Buckets are cumulative: each row of a heatmap has what the bucket below has not.
function buckets(target, results, grid, column) {
  const sorted = [...results].sort((a, b) => number(a.metric.le) - number(b.metric.le));
  const columns = sorted.map(column);
  const fields = sorted.map((one, row) => ({
    name: one.metric.le,
    type: FieldType.number,
    labels: one.metric,
    values: columns[row].map((v, i) => (v === null ? null : Math.max(0, v - (row ? (columns[row - 1][i] ?? 0) : 0)))),
  }));
  const time = { name: 'Time', type: FieldType.time, values: grid.map((second) => second * 1000) };
  return toDataFrame({ refId: target.refId, fields: [time, ...fields] });
}

// Returns the query as it was asked, and its frames.
export async function run(target, panel, variables, range, width, scrape) {
  const { step, known } = times(panel, range, width, scrape);
  const query = fill(target.expr, variables, known);
  const [start, end] = [range.from, range.to].map((t) => Math.floor(t / 1000 / step) * step);
  const several = panel.targets.length > 1;
  if (target.instant && !target.range) {
    const { result } = await ask('query', { query, time: end });
    if (target.format === 'table') {
      return { query, frames: result.length ? [rows(target, result, several)] : [] };
    }
    return {
      query,
      frames: result.map((one) => value(target, one.metric, [one.value[0] * 1000], [number(one.value[1])])),
    };
  }
  const { result } = await ask('query_range', { query, start, end, step });
  const grid = [];
  for (let second = start; second <= end; second += step) {
    grid.push(second);
  }
  const column = (one) => {
    const found = new Map(one.values);
    return grid.map((second) => (found.has(second) ? number(found.get(second)) : null));
  };
  if (target.format === 'heatmap') {
    return { query, frames: result.length ? [buckets(target, result, grid, column)] : [] };
  }
  const stamps = grid.map((second) => second * 1000);
  return { query, frames: result.map((one) => value(target, one.metric, stamps, column(one))) };
}
