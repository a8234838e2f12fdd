// Values of a dashboard's variables, and text with variables in it.
import { ask } from './prometheus.js';

const NAMES = /\$(\w+)|\$\{(\w+)(?:\.[^}:]+)?(?::\w+)?\}/g;
const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\\\$&');

export function fill(text, variables, known = {}) {
  return text.replace(NAMES, (whole, bare, braced) => {
    const name = bare || braced;
    if (name in known) {
      return known[name];
    }
    const variable = variables[name];
    if (!variable) {
      return whole;
    }
    if (variable.all && variable.allValue) {
      return variable.allValue;
    }
    const values = [].concat(variable.value);
    if (!variable.multi) {
      return String(values[0]);
    }
    return values.length === 1 ? escaped(values[0]) : `(${values.map(escaped).join('|')})`;
  });
}

async function options(variable, variables, range) {
  const query = fill(variable.query.query, variables);
  const match = query.match(/^label_values\((.*),\s*(\w+)\s*\)$/s);
  if (!match) {
    throw new Error(`variable ${variable.name}: cannot read ${query}`);
  }
  const time = { start: range.from / 1000, end: range.to / 1000 };
  return ask(`label/${match[2]}/values`, { ...time, 'match[]': match[1] });
}

// `chosen` has the parameters of the address, such as var-cluster.
export async function resolve(list, range, chosen) {
  const variables = {};
  for (const variable of list) {
    const given = chosen.getAll(`var-${variable.name}`);
    const current = given.length ? given : [].concat(variable.current?.value ?? variable.query ?? '');
    if (variable.type !== 'query') {
      variables[variable.name] = { value: current };
      continue;
    }
    const all = current.includes('$__all');
    const found = await options(variable, variables, range);
    variables[variable.name] = { multi: variable.multi, all, allValue: variable.allValue, value: all ? found : current };
  }
  return variables;
}
