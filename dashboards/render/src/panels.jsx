// A panel: its queries run, its transformations and field configuration applied.
import { applyFieldOverrides, FieldType, getFieldDisplayValues, renderMarkdown, standardTransformersRegistry, transformDataFrame, dateTime, rangeUtil } from '@grafana/data';
import { BarGauge, BigValue, PanelChrome, Table, TimeSeries, VizRepeater } from '@grafana/ui';
import React, { useEffect, useState } from 'react';
import { lastValueFrom } from 'rxjs';
import { Heatmap, Scatter, States } from './drawn.jsx';
import { Marks } from './marks.jsx';
import { configuration, registry } from './fields.js';
import { run } from './prometheus.js';
import { fill } from './variables.js';

const numbers = (data) => data.flatMap((frame) => frame.fields.filter((field) => field.type === FieldType.number));
const seen = (values) => values.filter((v) => v !== null && v !== undefined && !Number.isNaN(v)).length;

function ranged(panel, range) {
  if (!panel.timeFrom) {
    return range;
  }
  const from = dateTime(range.to.valueOf() - rangeUtil.intervalToMs(panel.timeFrom));
  return { from, to: range.to, raw: { from, to: range.to } };
}

async function load(panel, context, width) {
  const { variables, scrape, theme } = context;
  const range = ranged(panel, context.range);
  const answers = await Promise.all((panel.targets ?? []).map((target) => run(target, panel, variables, range, width, scrape)));
  let data = answers.flatMap(({ frames }) => frames);
  const replaceVariables = (text) => fill(text, variables);
  for (const { id } of panel.transformations ?? []) {
    if (!standardTransformersRegistry.getIfExists(id)) {
      throw new Error(`no transformation ${id}`);
    }
  }
  if (data.length && panel.transformations?.length) {
    data = await lastValueFrom(transformDataFrame(panel.transformations, data, { interpolate: replaceVariables }));
  }
  const fieldConfig = configuration(panel);
  data = applyFieldOverrides({ data, fieldConfig, replaceVariables, theme, timeZone: 'utc', fieldConfigRegistry: registry(fieldConfig) });
  return { data, range, queries: answers.map(({ query, frames }) => ({ query, series: frames.length })) };
}

function Values({ panel, data, width, height, theme, variables }) {
  const options = panel.options ?? {};
  const getValues = () =>
    getFieldDisplayValues({
      fieldConfig: configuration(panel),
      reduceOptions: { calcs: ['lastNotNull'], values: false, ...options.reduceOptions },
      replaceVariables: (text) => fill(text, variables),
      theme,
      data,
      sparkline: panel.type === 'stat' && options.graphMode !== 'none',
      timeZone: 'utc',
    });
  const figure = ({ value, alignmentFactors, ...props }) =>
    panel.type === 'stat' ? (
      <BigValue {...props} theme={theme} value={value.display} sparkline={value.sparkline} colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode} textMode={options.textMode} text={options.text} />
    ) : (
      <BarGauge {...props} theme={theme} value={value.display} field={value.field} displayMode={options.displayMode} orientation={props.orientation} text={options.text} namePlacement={options.namePlacement} valueDisplayMode={options.valueMode} />
    );
  return <VizRepeater getValues={getValues} renderValue={figure} width={width} height={height} source={data} itemSpacing={8} renderCounter={0} orientation={options.orientation || "auto"} maxVizHeight={options.maxVizHeight} autoGrid />;
}

function Body({ panel, data, range, width, height, context }) {
  const { theme, variables } = context;
  const size = { width, height };
  if (panel.type === 'text') {
    const html = renderMarkdown(fill(panel.options.content, variables));
    return <div className="markdown-html" style={{ padding: 8 }} dangerouslySetInnerHTML={{ __html: html }} />;
  }
  if (!numbers(data).some((field) => seen(field.values))) {
    return <div style={{ padding: 16, fontSize: 18, textAlign: 'center' }}>{panel.fieldConfig?.defaults?.noValue || 'No data'}</div>;
  }
  switch (panel.type) {
    case 'timeseries':
      return <TimeSeries frames={data} timeRange={range} timeZone="utc" {...size} structureRev={1} legend={panel.options.legend} options={panel.options}>{(config) => <Marks config={config} found={context.found} theme={theme} />}</TimeSeries>;
    case 'table':
      return <Table data={data[0]} {...size} timeRange={range} initialSortBy={panel.options.sortBy} />;
    case 'heatmap':
      return <Heatmap frame={data[0]} {...size} theme={theme} />;
    case 'state-timeline':
      return <States data={data} {...size} theme={theme} />;
    case 'xychart':
      return <Scatter data={data} options={panel.options} {...size} theme={theme} />;
    case 'stat':
    case 'bargauge':
      return <Values panel={panel} data={data} {...size} theme={theme} variables={variables} />;
    default:
      throw new Error(`panels of type ${panel.type} are not drawn`);
  }
}

export function Panel({ panel, context, width, height, report }) {
  const [loaded, setLoaded] = useState(null);
  useEffect(() => {
    const row = { title: panel.title, type: panel.type, points: 0, queries: [], error: '' };
    load(panel, context, width)
      .catch((error) => {
        row.error = String(error.message || error);
        return { data: [], range: context.range, queries: [] };
      })
      .then((found) => {
        row.queries = found.queries;
        row.points = numbers(found.data).reduce((sum, field) => sum + seen(field.values), 0);
        report.panels.push(row);
        setLoaded({ ...found, error: row.error });
      });
  }, []);
  return (
    <PanelChrome title={fill(panel.title ?? '', context.variables)} description={panel.description} width={width} height={height} padding={panel.type === 'text' ? 'none' : 'md'}>
      {(inner, tall) => {
        if (!loaded) {
          return null;
        }
        if (loaded.error) {
          return <div style={{ color: '#f55', padding: 8 }}>{loaded.error}</div>;
        }
        return <Body panel={panel} data={loaded.data} range={loaded.range} width={inner} height={tall} context={context} />;
      }}
    </PanelChrome>
  );
}
