// A panel's field configuration, in the form that Grafana's own code applies.
import { FieldConfigOptionsRegistry } from '@grafana/data';

const CUSTOM = {
  timeseries: {
    drawStyle: 'line',
    lineInterpolation: 'linear',
    lineWidth: 1,
    fillOpacity: 0,
    gradientMode: 'none',
    spanNulls: false,
    showPoints: 'auto',
    pointSize: 5,
    stacking: { mode: 'none', group: 'A' },
    axisPlacement: 'auto',
    axisGridShow: true,
    scaleDistribution: { type: 'linear' },
    hideFrom: { legend: false, tooltip: false, viz: false },
    thresholdsStyle: { mode: 'off' },
    barAlignment: 0,
    axisColorMode: 'text',
  },
  table: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, filterable: false },
};
const STANDARD = ['unit', 'min', 'max', 'decimals', 'displayName', 'color', 'mappings', 'thresholds', 'noValue', 'links', 'filterable'];

export function registry(config) {
  const custom = new Set(Object.keys(config.defaults.custom));
  for (const { properties } of config.overrides) {
    properties.filter(({ id }) => id.startsWith('custom.')).forEach(({ id }) => custom.add(id.slice(7)));
  }
  const made = new FieldConfigOptionsRegistry();
  const add = (id, path, isCustom) =>
    made.register({
      id,
      path,
      isCustom,
      name: id,
      process: (value) => value,
      shouldApply: () => true,
      settings: {},
      override: () => null,
      editor: () => null,
      getItemsCount: () => 0,
    });
  STANDARD.forEach((id) => add(id, id, false));
  custom.forEach((id) => add(`custom.${id}`, id, true));
  return made;
}

export function configuration(panel) {
  const config = structuredClone({ defaults: {}, overrides: [], ...panel.fieldConfig });
  const { defaults } = config;
  defaults.custom = { ...CUSTOM[panel.type], ...defaults.custom };
  defaults.thresholds ||= { mode: 'absolute', steps: [{ value: null, color: 'green' }] };
  defaults.thresholds.steps.forEach((step) => (step.value ??= -Infinity));
  for (const { properties } of config.overrides) {
    for (const { id, value } of properties) {
      if (id === 'thresholds') {
        value.steps.forEach((step) => (step.value ??= -Infinity));
      }
    }
  }
  defaults.color ||= { mode: panel.type === 'timeseries' ? 'palette-classic' : 'thresholds' };
  return config;
}
