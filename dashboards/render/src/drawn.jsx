// Three kinds of panels that only Grafana's server has the code for, drawn anew from the
// values, units and colours that its library gives: heatmap, state timeline, scatter.
import { dateTime, FieldType, getFieldDisplayName } from '@grafana/data';
import { interpolateOranges } from 'd3-scale-chromatic';
import React from 'react';

const BOTTOM = 22;
const TICKS = [0, 1, 2, 3, 4, 5];
const clock = (stamp) => dateTime(stamp).utc().format('HH:mm');

function Times({ stamps, left, width, height }) {
  return TICKS.map((tick) => {
    const index = Math.round((tick * (stamps.length - 1)) / 5);
    const x = Math.min(width - 20, left + ((width - left) * index) / stamps.length);
    return <text key={tick} x={x} y={height - 6} textAnchor="middle">{clock(stamps[index])}</text>;
  });
}

export function Heatmap({ frame, width, height, theme }) {
  const [time, ...rows] = frame.fields;
  const left = 60;
  const most = Math.max(...rows.flatMap((row) => row.values.filter((v) => v !== null)), 1e-9);
  const cell = (width - left) / time.values.length;
  const tall = (height - BOTTOM) / rows.length;
  const color = (share) => interpolateOranges(theme.isDark ? 1 - share : share);
  const every = Math.ceil(14 / tall);
  return (
    <svg width={width} height={height} fontSize={12} fill={theme.colors.text.primary}>
      {rows.map((row, i) => {
        const y = height - BOTTOM - (i + 1) * tall;
        const label = row.name === '+Inf' ? '+Inf' : row.display(Number(row.name));
        return (
          <g key={row.name}>
            {i % every === 0 && <text x={left - 6} y={y + tall / 2 + 4} textAnchor="end">{label.text ?? label}{label.suffix}</text>}
            {row.values.map((v, k) => v > 0 && (
              <rect key={k} x={left + k * cell} y={y} width={cell + 0.5} height={Math.max(1, tall - 1)} fill={color(Math.sqrt(v / most))} />
            ))}
          </g>
        );
      })}
      <Times stamps={time.values} left={left} width={width} height={height} />
    </svg>
  );
}

function runs(values) {
  const found = [];
  values.forEach((value, index) => {
    const last = found[found.length - 1];
    if (last && last.value === value) {
      last.count += 1;
    } else {
      found.push({ value, index, count: 1 });
    }
  });
  return found.filter(({ value }) => value !== null);
}

export function States({ data, width, height, theme }) {
  const rows = data.flatMap((frame) => {
    const stamps = frame.fields[0].values;
    const fields = frame.fields.filter((field) => field.type !== FieldType.time);
    return fields.map((field) => ({ stamps, field, name: getFieldDisplayName(field, frame, data) }));
  });
  const left = 12 + 7 * Math.max(...rows.map((row) => row.name.length));
  const tall = (height - BOTTOM) / rows.length;
  const cell = (width - left) / rows[0].stamps.length;
  return (
    <svg width={width} height={height} fontSize={12} fill={theme.colors.text.primary}>
      {rows.map(({ field, name }, i) => (
        <g key={i}>
          <text x={left - 8} y={(i + 0.5) * tall + 4} textAnchor="end">{name}</text>
          {runs(field.values).map(({ value, index, count }) => {
            const shown = field.display(value);
            const [x, wide] = [left + index * cell, Math.max(1, count * cell)];
            return (
              <g key={index}>
                <rect x={x} y={i * tall + 3} width={wide} height={tall - 6} fill={shown.color} fillOpacity={0.7} />
                {wide > 8 * shown.text.length && <text x={x + wide / 2} y={(i + 0.5) * tall + 4} textAnchor="middle" fill={theme.colors.getContrastText(shown.color)}>{shown.text}</text>}
              </g>
            );
          })}
        </g>
      ))}
      <Times stamps={rows[0].stamps} left={left} width={width} height={height} />
    </svg>
  );
}

// Round numbers, so that an axis does not read 0.9437.
function nice(most) {
  const scale = 10 ** Math.floor(Math.log10(most || 1));
  return scale * [1, 2, 2.5, 5, 10].find((step) => step * scale >= most);
}

export function Scatter({ data, options, width, height, theme }) {
  const fields = data[0].fields;
  const find = (name) => fields.find((field) => getFieldDisplayName(field, data[0], data) === name);
  const across = find(options.series[0].x.matcher.options);
  const plotted = options.series.map(({ name, y }) => ({ name: name.fixed, field: find(y.matcher.options) })).filter(({ field }) => field);
  if (!across || !plotted.some(({ field }) => field.values.some(Number.isFinite))) {
    return null;
  }
  const [left, bottom, top] = [70, 64, 8];
  const mostX = nice(Math.max(...across.values.filter(Number.isFinite)));
  const mostY = nice(Math.max(...plotted.flatMap(({ field }) => field.values.filter(Number.isFinite))));
  const x = (v) => left + ((width - left - 20) * v) / mostX;
  const y = (v) => height - bottom - ((height - bottom - top) * v) / mostY;
  const said = (field, v) => { const d = field.display(v); return `${d.text}${d.suffix ?? ''}`; };
  return (
    <svg width={width} height={height} fontSize={12} fill={theme.colors.text.primary}>
      {TICKS.map((tick) => (
        <g key={tick}>
          <line x1={left} x2={width - 20} y1={y((tick * mostY) / 5)} y2={y((tick * mostY) / 5)} stroke={theme.colors.border.weak} />
          <text x={left - 6} y={y((tick * mostY) / 5) + 4} textAnchor="end">{said(plotted[0].field, (tick * mostY) / 5)}</text>
          <text x={x((tick * mostX) / 5)} y={height - bottom + 16} textAnchor="middle">{said(across, (tick * mostX) / 5)}</text>
        </g>
      ))}
      <text x={(left + width) / 2} y={height - bottom + 34} textAnchor="middle">{options.series[0].x.matcher.options}</text>
      {plotted.map(({ name, field }, i) => {
        const color = theme.visualization.getColorByName(field.config.color?.fixedColor || 'blue');
        const size = (field.config.custom?.pointSize?.fixed ?? 4) / 2;
        const fillColor = field.config.color?.fixedColor === 'text' ? theme.colors.text.primary : color;
        return (
          <g key={name} fill={fillColor} fillOpacity={0.7}>
            {field.values.map((v, k) => Number.isFinite(v) && v !== null && Number.isFinite(across.values[k]) && across.values[k] !== null && (
              <circle key={k} cx={x(across.values[k])} cy={y(v)} r={size} />
            ))}
            <circle cx={left + ((width - left) / plotted.length) * i} cy={height - 10} r={4} />
            <text x={left + 8 + ((width - left) / plotted.length) * i} y={height - 6} fillOpacity={1}>{name}</text>
          </g>
        );
      })}
    </svg>
  );
}
