// Draws a dashboard's JSON with Grafana's own library: units, thresholds, mappings,
// overrides, transformations, time series, tables, tiles and bars are its code. It is no
// Grafana server: nothing can be clicked.
import { createTheme, dateMath, dateTime, EventBusSrv, standardTransformers, standardTransformersRegistry } from '@grafana/data';
import { GlobalStyles, PanelContextProvider, PortalContainer, ThemeContext } from '@grafana/ui';
import React, { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import 'uplot/dist/uPlot.min.css';
import { marks } from './marks.jsx';
import { Panel } from './panels.jsx';
import { resolve } from './variables.js';

const parameters = new URLSearchParams(location.search);
const theme = createTheme({ colors: { mode: parameters.get('theme') === 'light' ? 'light' : 'dark' } });
const [COLUMNS, UNIT, GAP, WIDTH] = [24, 30, 8, 1600];
const report = (window.report = { panels: [], expected: null, errors: [] });
const unique = new Map(Object.values(standardTransformers).map((one) => [one.id, one]));
standardTransformersRegistry.setInit(() => [...unique.values()].map((one) => ({ id: one.id, name: one.name, transformation: one, editor: () => null })));

function span(dashboard) {
  const moment = (name, up) => {
    const given = parameters.get(name);
    return given ? dateTime(Number(given)) : dateMath.parse(dashboard.time[name], up);
  };
  const [from, to] = [moment('from', false), moment('to', true)];
  return { from, to, raw: { from, to } };
}

function Variables({ list, variables }) {
  const style = { border: `1px solid ${theme.colors.border.medium}`, padding: '4px 8px' };
  const said = ({ name }) => (variables[name].all ? 'All' : [].concat(variables[name].value).join(' + '));
  return (
    <div style={{ display: 'flex', gap: 12, marginBottom: 12, fontSize: 12 }}>
      {list.map((one) => <span key={one.name} style={style}>{one.label}: <b>{said(one)}</b></span>)}
    </div>
  );
}

function Dashboard({ dashboard }) {
  const [context, setContext] = useState(null);
  const list = dashboard.templating.list;
  useEffect(() => {
    const range = span(dashboard);
    const scrape = Number(parameters.get('scrape') || 15);
    resolve(list, range, parameters)
      .then(async (variables) => {
        const found = await marks(dashboard.annotations.list, variables, range, scrape);
        report.marks = found;
        setContext({ range, scrape, theme, variables, found });
      })
      .catch((error) => report.errors.push(String(error)));
  }, []);
  if (!context) {
    return null;
  }
  const { panels } = dashboard;
  report.expected = panels.filter(({ type }) => type !== 'row').length;
  const column = (WIDTH + GAP) / COLUMNS;
  const row = UNIT + GAP;
  const height = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h)) * row;
  return (
    <div style={{ width: WIDTH, padding: 16, background: theme.colors.background.canvas, color: theme.colors.text.primary, fontFamily: theme.typography.fontFamily, fontSize: 14 }}>
      <div style={{ fontSize: 20, marginBottom: 8 }}>{dashboard.title}</div>
      <Variables list={list} variables={context.variables} />
      <div style={{ position: 'relative', height }}>
        {panels.map((panel) => {
          const { x, y, w, h } = panel.gridPos;
          return (
            <div key={panel.id} style={{ position: 'absolute', left: x * column, top: y * row }}>
              {panel.type === 'row' ? <div style={{ fontSize: 16, paddingTop: 8 }}>▾ {panel.title}</div> : <Panel panel={panel} context={context} width={w * column - GAP} height={h * row - GAP} report={report} />}
            </div>
          );
        })}
      </div>
    </div>
  );
}

const panelContext = { eventsScope: 'global', eventBus: new EventBusSrv(), onSplitOpen: () => {}, canAddAnnotations: () => false };
const dashboard = await (await fetch('/dashboard.json')).json();
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <PanelContextProvider value={panelContext}>
      <Dashboard dashboard={dashboard} />
    </PanelContextProvider>
    <PortalContainer />
  </ThemeContext.Provider>,
);
